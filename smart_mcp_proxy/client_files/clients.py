"""Known clients: one row each, with the files that hold their servers and the words of their entries."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from smart_mcp_proxy.client_files.bounds import TextFormat

_NOTHING: Mapping[str, Any] = MappingProxyType({})
LIST = "[]"
"""Last key of a section whose servers stand in a list, each with its `name`."""
_VS_CODE = ("~/.config/Code/User", "~/Library/Application Support/Code/User")


class KnownClient(msgspec.Struct, frozen=True):
    """Known MCP client: where it keeps its servers, and how it writes an entry down.

    Attributes:
        name: Its name on our command line.
        title: Its name for people.
        linux: The user's file on Linux, the likeliest first; `$NAME/` begins a path that a variable may set.
        mac: The same on macOS; empty where it is the same.
        project: The file of a project, relative to it; empty without one.
        section: Keys that lead to its map of servers; `LIST` at the end where they stand in a list.
        text_format: Language of the file.
        signs: Folders or files that tell that the client is installed, besides the user's file and its folder.
        command_key: Key of the program.
        is_command_list: The program and its arguments stand in one list under `command_key`.
        env_key: Key of the program's variables.
        url_key: Key of an address; empty where the client only starts programs.
        headers_key: Key of an address's headers.
        stdio: What an entry that starts a program needs besides.
        http: What an entry with an address needs besides.
        always: What both need.
        required: Keys of its file without which it refuses the whole of it.
        variable: Reference to an environment variable, with `{}` for its name; empty where the client fills none in.
        passes: How an entry lets the user's variables through to a program, where the client withholds them: `names`,
            a list of them under `passes_key`, or `references` among the program's variables; empty where it passes all.
        passes_key: See `passes`.
        bearer_key: Key of a bearer token instead of a header: a reference, or the variable's name where it has none.
        says: Parts of the name that it gives when it connects; empty where no run has shown it.
        restart: What makes the client read the file again.
    """

    name: str
    title: str
    linux: tuple[str, ...]
    mac: tuple[str, ...] = ()
    project: str = ""
    section: tuple[str, ...] = ("mcpServers",)
    text_format: TextFormat = "json"
    signs: tuple[str, ...] = ()
    command_key: str = "command"
    is_command_list: bool = False
    env_key: str = "env"
    url_key: str = "url"
    headers_key: str = "headers"
    stdio: Mapping[str, Any] = msgspec.field(default_factory=lambda: _NOTHING)
    http: Mapping[str, Any] = msgspec.field(default_factory=lambda: _NOTHING)
    always: Mapping[str, Any] = msgspec.field(default_factory=lambda: _NOTHING)
    required: tuple[str, ...] = ()
    variable: str = ""
    passes: Literal["", "names", "references"] = ""
    passes_key: str = ""
    bearer_key: str = ""
    says: tuple[str, ...] = ()
    restart: str = "Restart it"


KNOWN_CLIENTS = (
    KnownClient(
        "claude-code",
        "Claude Code",
        ("$CLAUDE_CONFIG_DIR/.claude.json", "~/.claude.json"),
        project=".mcp.json",
        signs=("~/.claude",),
        stdio={"type": "stdio"},
        http={"type": "http"},
        always={"alwaysLoad": True},  # else it hides our tools behind its own search
        variable="${{{}}}",
        says=("claude-code",),
        restart="Start a new session",
    ),
    KnownClient(
        "claude-desktop",
        "Claude Desktop",
        ("~/.config/Claude/claude_desktop_config.json",),
        ("~/Library/Application Support/Claude/claude_desktop_config.json",),
        url_key="",
        says=("claude-ai", "claude desktop"),
    ),
    KnownClient(
        "cursor",
        "Cursor",
        ("~/.cursor/mcp.json",),
        project=".cursor/mcp.json",
        variable="${{env:{}}}",
        says=("cursor",),
    ),
    KnownClient(
        "vscode",
        "VS Code",
        (f"{_VS_CODE[0]}/mcp.json",),
        (f"{_VS_CODE[1]}/mcp.json",),
        project=".vscode/mcp.json",
        section=("servers",),
        stdio={"type": "stdio"},
        http={"type": "http"},
        variable="${{env:{}}}",
        says=("visual studio code", "vscode"),
        restart="Start the server in its MCP list",
    ),
    KnownClient(
        "windsurf",
        "Windsurf",
        ("~/.codeium/windsurf/mcp_config.json",),
        url_key="serverUrl",
        variable="${{env:{}}}",
        restart="Refresh its MCP servers",
    ),
    KnownClient(
        "codex",
        "Codex",
        ("$CODEX_HOME/config.toml", "~/.codex/config.toml"),
        project=".codex/config.toml",
        section=("mcp_servers",),
        text_format="toml",
        headers_key="http_headers",
        passes="names",
        passes_key="env_vars",
        bearer_key="bearer_token_env_var",
        says=("codex",),
        restart="Start a new session",
    ),
    KnownClient(
        "gemini",
        "Gemini CLI",
        ("~/.gemini/settings.json",),
        project=".gemini/settings.json",
        http={"type": "http"},
        variable="${}",
        passes="references",
        says=("gemini-cli",),
        restart="Start a new session",
    ),
    KnownClient(
        "opencode",
        "OpenCode",
        ("~/.config/opencode/opencode.jsonc", "~/.config/opencode/opencode.json", "~/.config/opencode/config.json"),
        project="opencode.json",
        section=("mcp",),
        is_command_list=True,
        env_key="environment",
        stdio={"type": "local"},
        http={"type": "remote"},
        always={"enabled": True},
        variable="{{env:{}}}",
        says=("opencode",),
        restart="Start a new session",
    ),
    KnownClient(
        "copilot",
        "Copilot CLI",
        ("~/.copilot/mcp-config.json",),
        stdio={"type": "local"},
        http={"type": "http"},
        # Without the first no tool is allowed; with many tools it hides ours without the second.
        always={"tools": ["*"], "deferTools": "never"},
        restart="Start a new session",
    ),
    KnownClient(
        "zed",
        "Zed",
        ("~/.config/zed/settings.json",),
        project=".zed/settings.json",
        section=("context_servers",),
        always={"source": "custom"},
        restart="Nothing more is needed",
    ),
    KnownClient(
        "goose",
        "Goose",
        ("~/.config/goose/config.yaml",),
        section=("extensions",),
        text_format="yaml",
        command_key="cmd",
        env_key="envs",
        url_key="uri",
        stdio={"type": "stdio"},
        http={"type": "streamable_http"},
        always={"name": "mcpproxy", "description": "Finds the tools of all servers", "enabled": True, "timeout": 300},
        restart="Start a new session",
    ),
    KnownClient(
        "cline",
        "Cline",
        (
            f"{_VS_CODE[0]}/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            "~/.cline/data/settings/cline_mcp_settings.json",
        ),
        (
            f"{_VS_CODE[1]}/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            "~/.cline/data/settings/cline_mcp_settings.json",
        ),
        http={"type": "streamableHttp"},
        restart="Nothing more is needed",
    ),
    KnownClient("jetbrains", "JetBrains Junie", ("~/.junie/mcp/mcp.json",), project=".junie/mcp/mcp.json"),
    KnownClient("lm-studio", "LM Studio", ("~/.lmstudio/mcp.json", "~/.cache/lm-studio/mcp.json")),
    KnownClient("amp", "Amp", ("~/.config/amp/settings.json",), section=("amp.mcpServers",)),
    KnownClient(
        "kiro",
        "Kiro",
        ("~/.kiro/settings/mcp.json",),
        project=".kiro/settings/mcp.json",
        variable="${{env:{}}}",
        restart="Nothing more is needed",
    ),
    KnownClient(
        "droid",
        "Factory Droid",
        ("~/.factory/mcp.json",),
        project=".factory/mcp.json",
        stdio={"type": "stdio"},
        http={"type": "http"},
        variable="${{{}}}",
        says=("factory-cli",),
        restart="Start a new session",
    ),
    KnownClient(
        "qwen",
        "Qwen Code",
        ("~/.qwen/settings.json",),
        project=".qwen/settings.json",
        url_key="httpUrl",  # `url` is that of an SSE server
        always={"alwaysLoadTools": True},  # else it hides our tools behind its own search
        variable="${}",
        says=("qwen-cli-mcp-client",),
        restart="Start a new session",
    ),
    KnownClient(
        "auggie",
        "Auggie",
        ("~/.augment/settings.json",),
        project=".augment/settings.json",
        stdio={"type": "stdio"},
        http={"type": "http"},
        restart="Start a new session",
    ),
    KnownClient(
        "qoder",
        "Qoder CLI",
        ("~/.qoder/settings.json",),
        http={"type": "http"},
        variable="${}",
        passes="references",
        restart="Start a new session",
    ),
    KnownClient(
        "crush",
        "Crush",
        ("~/.config/crush/crush.json",),
        project="crush.json",
        section=("mcp",),
        stdio={"type": "stdio"},
        http={"type": "http"},
        variable="${}",
        restart="Start a new session",
    ),
    KnownClient(
        "kilo",
        "Kilo Code",
        ("~/.config/kilo/kilo.jsonc", "~/.config/kilo/kilo.json"),
        project="kilo.json",
        section=("mcp",),
        is_command_list=True,
        env_key="environment",
        stdio={"type": "local"},
        http={"type": "remote"},
        always={"enabled": True},
        variable="{{env:{}}}",
        restart="Start a new session",
    ),
    KnownClient(
        "continue",
        "Continue CLI",
        ("$CONTINUE_GLOBAL_DIR/config.yaml", "~/.continue/config.yaml"),
        section=("mcpServers", LIST),
        text_format="yaml",
        http={"type": "streamable-http"},
        always={"name": "mcpproxy"},
        variable="${{{{ secrets.{} }}}}",
        bearer_key="apiKey",
        required=("name", "version"),
        says=("continue-cli-client",),
        restart="Start a new session",
    ),
    KnownClient(
        "mcporter",
        "mcporter",
        ("$XDG_CONFIG_HOME/mcporter/mcporter.json", "~/.mcporter/mcporter.json"),
        project="config/mcporter.json",
        url_key="baseUrl",
        variable="${{{}}}",
        says=("mcporter",),
        restart="Run `mcporter list`",
    ),
    KnownClient(
        "mcpc",
        "mcpc",
        ("~/.mcpc/mcp.json",),
        variable="${{{}}}",
        passes="references",
        says=("mcpc",),
        restart="Run `mcpc connect ~/.mcpc/mcp.json:mcpproxy @mcpproxy`",
    ),
)
"""As the clients' own documentation has it, and as they were seen to write.

Source: docs/clients/index.md#what-was-tried"""
