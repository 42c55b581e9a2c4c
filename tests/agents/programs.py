"""The coding agents that the tests drive: package, files they read, and the command that gives them one task."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TASK = "Count to three with the tools that you have."
CLOSED = "http://127.0.0.1:9"
"""A proxy that does not exist: what an agent asks of any other host fails at once."""
START_MS = 120_000
"""Both agents of `.ci/run` go on without a server that takes longer than 30 s, which a loaded machine may need."""
QUIET = {"HTTP_PROXY": CLOSED, "HTTPS_PROXY": CLOSED, "NO_PROXY": "127.0.0.1,localhost", "DO_NOT_TRACK": "1", "CI": "1"}


@dataclass(frozen=True)
class Target:
    """The gateway as an agent is pointed at it: an address, or a command to start with its variables."""

    url: str | None = None
    command: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Program:
    """One agent: its npm package in a fixed version, and how it is set up in a home folder of its own.

    `prepare` writes the files that the agent reads below `home` and returns the arguments and variables of its start.
    """

    name: str
    package: str
    executable: str
    prepare: Callable[[Path, str, Target], tuple[list[str], dict[str, str]]]

    def __repr__(self) -> str:
        return self.name


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value), "utf-8")


def entry(target: Target) -> dict[str, Any]:
    """The usual form of a server in an `mcpServers` file, without a type."""
    if target.url is not None:
        return {"url": target.url}
    command, *arguments = target.command
    return {"command": command, "args": arguments, "env": dict(target.env or {})}


def claude_code(home: Path, model: str, target: Target) -> tuple[list[str], dict[str, str]]:
    kind = "stdio" if target.url is None else "http"
    write_json(home / "mcp.json", {"mcpServers": {"gw": {"type": kind, **entry(target)}}})
    arguments = ["-p", TASK, "--mcp-config", str(home / "mcp.json"), "--strict-mcp-config", "--model", "scripted"]
    arguments += ["--allowedTools", "mcp__gw"]
    switches = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER")
    off = dict.fromkeys((*switches, "DISABLE_ERROR_REPORTING"), "1")
    variables = {"ANTHROPIC_BASE_URL": model, "ANTHROPIC_API_KEY": "none-needed", **off}
    return arguments, variables | {"MCP_TIMEOUT": str(START_MS), "MCP_CONNECT_TIMEOUT_MS": str(START_MS)}


def codex(home: Path, model: str, target: Target) -> tuple[list[str], dict[str, str]]:
    lines = [
        'model = "scripted"',
        'model_provider = "scripted"',
        "check_for_update_on_startup = false",
        "[analytics]",
        "enabled = false",
        "[model_providers.scripted]",
        'name = "scripted"',
        f'base_url = "{model}/v1"',
        'wire_api = "responses"',
        'env_key = "SCRIPTED_KEY"',
        "[mcp_servers.gw]",
        "startup_timeout_sec = 60",
        'default_tools_approval_mode = "approve"',
    ]
    if target.url is not None:
        lines.append(f'url = "{target.url}"')
    else:
        command, *rest = target.command
        lines += [f"command = {json.dumps(command)}", f"args = {json.dumps(rest)}", "[mcp_servers.gw.env]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in (target.env or {}).items()]
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text("\n".join(lines) + "\n", "utf-8")
    arguments = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK]
    return arguments, {"CODEX_HOME": str(home / ".codex"), "SCRIPTED_KEY": "none-needed"}


def gemini(home: Path, model: str, target: Target) -> tuple[list[str], dict[str, str]]:
    server = entry(target) | {"trust": True, "timeout": 60_000}
    if target.url is not None:
        server["type"] = "http"
    settings = {
        "mcpServers": {"gw": server},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
    }
    write_json(home / ".gemini" / "settings.json", settings)
    arguments = ["-p", TASK, "--approval-mode", "yolo", "--model", "gemini-2.5-flash"]
    variables = {"GOOGLE_GEMINI_BASE_URL": model, "GEMINI_API_KEY": "none-needed"}
    return arguments, variables | {"GEMINI_CLI_TRUST_WORKSPACE": "true"}


def opencode(home: Path, model: str, target: Target) -> tuple[list[str], dict[str, str]]:
    server: dict[str, Any] = {"type": "remote", "url": target.url}
    if target.url is None:
        server = {"type": "local", "command": list(target.command), "environment": dict(target.env or {})}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{model}/v1", "apiKey": "none-needed"},
        "models": {"scripted": {"name": "scripted", "tool_call": True}},
    }
    settings = {
        "mcp": {"gw": {**server, "enabled": True, "timeout": 60_000}},
        "provider": {"scripted": provider},
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "autoupdate": False,
        "share": "disabled",
        "permission": "allow",
        "experimental": {"mcp_timeout": START_MS},
    }
    write_json(home / ".config" / "opencode" / "opencode.json", settings)
    switches = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
    off = {f"OPENCODE_DISABLE_{name}": "1" for name in switches}
    return ["run", "--model", "scripted/scripted", TASK], {"XDG_CONFIG_HOME": str(home / ".config"), **off}


def qwen(home: Path, model: str, target: Target) -> tuple[list[str], dict[str, str]]:
    server = entry(target) | {"trust": True, "timeout": START_MS, "alwaysLoadTools": True}
    if "url" in server:
        server["httpUrl"] = server.pop("url")
    settings = {
        "mcpServers": {"mcpproxy": server},  # it puts the name into its own
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    write_json(home / ".qwen" / "settings.json", settings)
    variables = {"OPENAI_BASE_URL": f"{model}/v1", "OPENAI_API_KEY": "none-needed", "OPENAI_MODEL": "scripted"}
    return ["-p", TASK, "--approval-mode", "yolo"], variables


def continue_cli(home: Path, model: str, target: Target) -> tuple[list[str], dict[str, str]]:
    server = {"name": "gw", **entry(target)}
    if target.url is not None:
        server["type"] = "streamable-http"
    scripted = {"name": "scripted", "provider": "openai", "model": "gpt-4o", "apiBase": f"{model}/v1", "apiKey": "none"}
    scripted |= {"roles": ["chat"], "capabilities": ["tool_use"]}
    settings = {"name": "own", "version": "1.0.0", "schema": "v1", "models": [scripted], "mcpServers": [server]}
    file = home / ".continue" / "config.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")
    return ["-p", TASK, "--auto", "--config", str(file)], {"CONTINUE_TELEMETRY_ENABLED": "0"}


PROGRAMS = (
    Program("claude-code", "@anthropic-ai/claude-code@2.1.332", "claude", claude_code),
    Program("codex", "@openai/codex@0.171.0", "codex", codex),
    Program("gemini-cli", "@google/gemini-cli@0.61.0", "gemini", gemini),
    Program("opencode", "opencode-ai@1.18.33", "opencode", opencode),
    Program("qwen-code", "@qwen-code/qwen-code@0.24.4", "qwen", qwen),
    Program("continue", "@continuedev/cli@1.5.47", "cn", continue_cli),
)
IN_CI = {"claude-code", "opencode"}
"""Driven by `.ci/run`; the others by `make soak`."""
