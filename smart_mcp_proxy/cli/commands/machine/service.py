"""`mcpproxy service`: run the gateway over HTTP whenever the user is logged in."""

import os
import plistlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread
from cyclopts import App

from smart_mcp_proxy.cli.support.failure import add_next_step
from smart_mcp_proxy.cli.support.output import say, show, show_json, translate_write_errors, warn
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.desktop.spelling import explain_passing, find_program
from smart_mcp_proxy.errors import ConfigError, ProxyError
from smart_mcp_proxy.servers import find_config
from smart_mcp_proxy.settings import Settings, environment, origins

_UNIT_NAME = "mcpproxy.service"
_LABEL = "dev.smartmcpproxy.gateway"
_MARK = "Written by: mcpproxy service install"
"""Stands in every file of ours; one without it is somebody else's and is left alone."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_STOP_S = 30
"""Longer than a gateway takes to end its servers."""
_ANSWER_S = 60.0
"""For the service manager; stopping a gateway takes some seconds."""

app = App(
    name="service",
    help_epilogue="""\
Examples:
  mcpproxy service install --dry-run
  mcpproxy service install
  mcpproxy service status
  mcpproxy service uninstall

Written is a unit of systemd's user manager on Linux, an agent of launchd on
macOS. It carries PATH and the MCPPROXY_ variables of this shell, secrets
excepted; others, those of your servers say, belong into service.env in the
data directory (Linux), or into ${file:...} and ${keyring:...}.""",
)


@dataclass(frozen=True, slots=True)
class _Manager:
    """The service manager of this system.

    Attributes:
        program: Its command.
        file: Where the service's file belongs.
        start: What makes it run the service, now and at every login.
        stop: What ends that.
        ask: What succeeds while the service runs.
    """

    program: str
    file: Path
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]
    ask: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """The gateway as a service manager is to run it.

    Attributes:
        command: Program and arguments.
        variables: Environment; no secrets.
        data_dir: Where its log and a file with further variables lie.
    """

    command: Sequence[str]
    variables: Mapping[str, str]
    data_dir: Path


@app.command(help_epilogue="Examples:\n  mcpproxy service install --dry-run\n  mcpproxy service install")
async def install(*, dry_run: bool = False, json: bool = False) -> None:
    """Write the service's file and start it, now and at every login.

    Args:
        dry_run: Print the file that would be written, and do nothing.
        json: Print {"file", "content", "is_installed", "left_out"}.
    """
    settings = open_settings()
    manager = _manager()
    plan, left_out = _plan_service(settings)
    text = launchd_list(plan) if manager.program == "launchctl" else systemd_unit(plan)
    if not dry_run:
        await to_thread.run_sync(_install, manager, text)
    if json:
        facts = {"file": str(manager.file), "content": text, "is_installed": not dry_run, "left_out": left_out}
        show_json(facts)
        return
    for name in left_out:
        warn(f"{name} is a secret and is left out. Set {name}_FILE instead, or write it into service.env.")
    if passing := explain_passing(sys.prefix):
        warn(passing)
    if dry_run:
        say(f"{manager.file} would be:", style="dim")
        show(text.rstrip("\n"))
        return
    say(f"Wrote {manager.file} and started it.", style="green")
    if manager.program == "systemctl":
        say("It ends when you log out, unless you run: loginctl enable-linger")
    say("Next: mcpproxy service status")


@app.command(help_epilogue="Examples:\n  mcpproxy service uninstall")
async def uninstall(*, dry_run: bool = False, json: bool = False) -> None:
    """Stop the service and remove its file; servers, settings and data stay.

    Args:
        dry_run: Only say which file would be removed.
        json: Print {"file", "was_installed"}.
    """
    manager = _manager()
    was_installed = await to_thread.run_sync(manager.file.is_file)
    if was_installed and not dry_run:
        await to_thread.run_sync(_uninstall, manager)
    if json:
        show_json({"file": str(manager.file), "was_installed": was_installed})
    elif not was_installed:
        say(f"There is no service of ours: {manager.file} does not exist.")
    else:
        say(f"{'Would remove' if dry_run else 'Stopped it and removed'} {manager.file}.")


@app.command(help_epilogue="Examples:\n  mcpproxy service status")
async def status(*, json: bool = False) -> int:
    """Say whether the service is installed and runs; the exit status is 1 if it does not run.

    Args:
        json: Print {"file", "is_installed", "is_running"}.
    """
    manager = _manager()
    is_installed = await to_thread.run_sync(manager.file.is_file)
    is_running = is_installed and await to_thread.run_sync(_succeeds, manager, manager.ask)
    if json:
        show_json({"file": str(manager.file), "is_installed": is_installed, "is_running": is_running})
    elif not is_installed:
        say(f"Not installed: {manager.file} does not exist.")
        say("Next: mcpproxy service install")
    else:
        say(f"Installed ({manager.file}) and {'running' if is_running else 'not running'}.")
        say(f"Next: {'mcpproxy doctor' if is_running else _log_command(manager)}")
    return 0 if is_running else 1


def _manager() -> _Manager:
    """The service manager of this system, which need not be there.

    Raises:
        ConfigError: There is none that is known here.
    """
    environ, system = environment(), str(sys.platform)
    home = Path(environ.get("HOME") or "~").expanduser()
    if system == "darwin":
        file = home / "Library" / "LaunchAgents" / f"{_LABEL}.plist"
        domain = f"gui/{os.getuid()}"
        return _Manager(
            "launchctl",
            file,
            (("bootstrap", domain, str(file)),),
            (("bootout", f"{domain}/{_LABEL}"),),
            ("print", f"{domain}/{_LABEL}"),
        )
    if system.startswith("linux"):
        folder = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "systemd" / "user"
        start = (("--user", "daemon-reload"), ("--user", "enable", "--now", _UNIT_NAME))
        stop = (("--user", "disable", "--now", _UNIT_NAME),)
        return _Manager("systemctl", folder / _UNIT_NAME, start, stop, ("--user", "is-active", "--quiet", _UNIT_NAME))
    raise add_next_step(
        ConfigError(f"Services are written for systemd and launchd, not for {system}."), "mcpproxy serve --http"
    )


def _plan_service(settings: Settings) -> tuple[ServicePlan, list[str]]:
    """The gateway as the service starts it, and the secret variables that are left out."""
    environ = environment()
    command = [*find_program(), "serve", "--http"]
    if settings.config_json is None and (config := find_config(settings, Path.cwd())):
        command += ["--config", str(config.resolve())]
    given = [one.setting for one in origins(settings, environ) if environ.get(one.setting.variable)]
    variables = {one.variable: environ[one.variable] for one in given if not one.is_secret}
    variables.pop("MCPPROXY_CONFIG_PATH", None)
    variables["MCPPROXY_DATA_DIR"] = str(settings.data_dir.resolve())  # the service has another working directory
    variables |= {"PATH": environ["PATH"]} if environ.get("PATH") else {}
    return ServicePlan(command, variables, settings.data_dir.resolve()), [
        one.variable for one in given if one.is_secret
    ]


def _install(manager: _Manager, text: str) -> None:
    _require_program(manager)
    if manager.file.exists():
        _require_ours(manager.file)
        for words in manager.stop:
            _succeeds(manager, words)  # it may be stopped already
    with translate_write_errors(str(manager.file)):
        manager.file.parent.mkdir(parents=True, exist_ok=True)
        manager.file.write_text(text, encoding="utf-8")
    for words in manager.start:
        _run(manager, words)


def _uninstall(manager: _Manager) -> None:
    _require_program(manager)
    _require_ours(manager.file)
    for words in manager.stop:
        _succeeds(manager, words)  # it may be stopped already
    manager.file.unlink()
    if manager.program == "systemctl":
        _succeeds(manager, manager.start[0])


def _require_ours(file: Path) -> None:
    if _MARK not in file.read_text(encoding="utf-8", errors="replace"):
        raise add_next_step(
            ConfigError(f"{file} was not written by mcpproxy.", hint="Move it away first."),
            "mcpproxy service install --dry-run",
        )


def _require_program(manager: _Manager) -> None:
    if shutil.which(manager.program, path=environment().get("PATH")) is None:
        raise add_next_step(
            ConfigError(
                f"{manager.program} is not on this machine, so no service can be installed.",
                hint="In a container run the gateway itself as its process.",
            ),
            "mcpproxy serve --http",
        )


def _run(manager: _Manager, words: tuple[str, ...]) -> None:
    done = _answer(manager, words)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise add_next_step(
            ProxyError(f"{manager.program} {' '.join(words)}: {said}", hint=f"The file is there: {manager.file}"),
            _log_command(manager),
        )


def _succeeds(manager: _Manager, words: tuple[str, ...]) -> bool:
    return _answer(manager, words).returncode == 0


def _answer(manager: _Manager, words: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
    """Ask the service manager.

    Raises:
        ProxyError: It does not answer in time, or is not there.
    """
    command = [manager.program, *words]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_ANSWER_S, env=dict(environment())
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise ProxyError(f"{manager.program} does not answer: {type(exc).__name__}.") from exc


def _log_command(manager: _Manager) -> str:
    if manager.program == "systemctl":
        return f"journalctl --user -u {_UNIT_NAME} -n 50"
    return f"launchctl print gui/{os.getuid()}/{_LABEL}"


def systemd_unit(plan: ServicePlan) -> str:
    """The unit of systemd's user manager.

    Raises:
        ConfigError: A value holds a line break or another control character.

    Source: https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html;
    https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html;
    https://www.freedesktop.org/software/systemd/man/latest/systemd.syntax.html
    """
    variables = [f"Environment={_quote_word(f'{name}={value}')}" for name, value in plan.variables.items()]
    return "\n".join(
        [
            f"# {_MARK}",
            "[Unit]",
            "Description=smart-mcp-proxy, one endpoint for all MCP servers",
            "",
            "[Service]",
            "ExecStart=" + " ".join(_quote_word(word).replace("$", "$$") for word in plan.command),
            *variables,
            "# Further variables, secrets of servers say: NAME=VALUE, a line each.",
            f"EnvironmentFile=-{_escape_word(str(plan.data_dir / 'service.env'))}",
            "Restart=on-failure",
            "RestartSec=5",
            # 2: settings or files are at fault, which a restart does not mend.
            "RestartPreventExitStatus=2",
            f"TimeoutStopSec={_STOP_S}",
            "NoNewPrivileges=yes",
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        ]
    )


def launchd_list(plan: ServicePlan) -> str:
    """The property list of a launchd agent, with the keys that launchd.plist(5) describes."""
    for word in (*plan.command, *plan.variables.values()):
        _refuse_control_chars(word)
    log = str(plan.data_dir / "service.log")
    content = {
        "Label": _LABEL,
        "ProgramArguments": list(plan.command),
        "EnvironmentVariables": dict(plan.variables),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": _STOP_S,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    head, newline, rest = plistlib.dumps(content, sort_keys=False).decode().partition("\n")
    return f"{head}{newline}<!-- {_MARK} -->\n{rest}"


def _quote_word(word: str) -> str:
    return f'"{_escape_word(word)}"'


def _escape_word(word: str) -> str:
    return _refuse_control_chars(word).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _refuse_control_chars(word: str) -> str:
    if _CONTROL.search(word):
        raise ConfigError("A setting holds a line break, which a service file cannot.", hint="Unset it, or use a file.")
    return word
