"""A configured server as a frozen value, and what a server file says as a whole."""

import fnmatch
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import astuple, replace

from smart_mcp_proxy.models import CallVariant, Transport, Trust

_CREDENTIAL = re.compile(r"auth|key|token|secret|password|cookie|session", re.IGNORECASE)

STDIO_INIT_S: Final = 300.0
"""Default of `init_s` for a program: its first start may have to download or compile what it needs."""
_PATIENCE_S: Final = 20.0
_CALL_MAX_S: Final = 3_600.0

ConnectionKind = Literal["shared", "per_client"]
"""Users of a connection to a server: all clients, or each client of the handshake era one of its own."""


IsolationMode = Literal["none", "sandbox", "container"]


class Allowance(msgspec.Struct, frozen=True):
    """Access of a confined server beyond its own package, the system and its private folder.

    Attributes:
        read: Files, and folders with all that is in them, that it may read.
        write: The same that it may change.
        network: Whether it may open connections; the hosts alone that it may open them to.
        projects: Folders around its script that it may read; no entry says them.

    Source: docs/isolation.md#isolation-of-servers
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool | tuple[str, ...] = True
    projects: tuple[str, ...] = ()


class Isolation(msgspec.Struct, frozen=True):
    """Isolation of a server's process.

    Attributes:
        mode: None where the gateway's default holds.
        image: Of its container; empty for one that fits its command.
        allow: None for the working directory and the paths that the entry's arguments name.
    """

    mode: IsolationMode | None = None
    image: str = ""
    allow: Allowance | None = None


class ServerLimits(msgspec.Struct, frozen=True):
    """Limits of one server's calls and their durations. None is no limit.

    Attributes:
        calls_per_s: Calls a second on average.
        burst: Calls that may come at once before that average counts.
        in_flight: Calls at the same time.
        queue: Calls that may wait for their turn.
        init_s: Seconds until the handshake is done; of a program on stdio `STDIO_INIT_S` where its entry says nothing.
        list_s: Seconds until its definitions are listed.
        call_s: Seconds until a call is answered or reports progress.
        call_max_s: Seconds up to which progress renews `call_s`; None for an hour, and only where the caller asks for
            progress: where the entry sets it, we ask.
        client_connections: Connections of single clients at the same time, where each has its own.
        client_idle_s: Seconds without a request after which such a connection is closed.

    Source: docs/servers.md#how-long-servers-may-take
    """

    calls_per_s: float | None = None
    burst: int | None = None
    in_flight: int | None = None
    queue: int | None = None
    init_s: float = 20.0
    list_s: float = 30.0
    call_s: float = 300.0
    call_max_s: float | None = None
    client_connections: int = 16
    client_idle_s: float = 900.0

    @property
    def patience_s(self) -> float:
        """Seconds that a request waits for a connection that is being made, however long the start may take."""
        return min(self.init_s, _PATIENCE_S)

    @property
    def longest_call_s(self) -> float:
        """Seconds after which a call ends although the server reports progress."""
        return max(self.call_s, self.call_max_s or _CALL_MAX_S)


class ProcessLimits(msgspec.Struct, frozen=True):
    """Limits of a stdio server's processes, in force from its start on. None is no limit.

    Attributes:
        memory_mb: Megabytes that each of them may take; in a container all together.
        open_files: Files that each of them may hold open.
        processes: How many there may be, threads counted; kept by containers and bubblewrap alone.
        file_mb: Megabytes to which each file may grow that they write.

    Source: docs/isolation.md#limits
    """

    memory_mb: int | None = None
    open_files: int | None = None
    processes: int | None = None
    file_mb: int | None = None


class ToolFilter(msgspec.Struct, frozen=True):
    """Globs over a server's own tool names, case-sensitive. Exclusion wins."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def allows(self, tool_name: str) -> bool:
        """Whether the tool passes: some include glob matches it and no exclude glob does."""
        if self == _EVERYTHING:  # as nearly always, and asked for each tool
            return True
        return any(fnmatch.fnmatchcase(tool_name, glob) for glob in self.include) and not any(
            fnmatch.fnmatchcase(tool_name, glob) for glob in self.exclude
        )


_EVERYTHING = ToolFilter()


class ServerConfig(msgspec.Struct, frozen=True):  # noqa: PLW1641  (its mappings have no hash)
    """Configuration of a server, before or after `expand()`; its repr shows no possible secret.

    Attributes:
        name: Configured name; any text without a colon or control characters.
        transport: How it is reached.
        command: Program of a stdio server, else empty.
        args: Its arguments.
        env: Variables for it, besides those it inherits.
        inherit: Names of variables that it gets from the gateway's environment as they are, beside the usual ones.
        cwd: Its working directory, None for the gateway's own.
        url: Address of an http or sse server, else empty.
        headers: Sent with every request to it.
        timeout_ms: The entry's `timeout`, already part of `limits.call_s`.
        limits: Rates and deadlines.
        process_limits: The others that its `limits` name.
        tools: Which of its tools are used.
        pin: Tools that are always offered.
        oauth: Sign-in options where OAuth is asked for (`true` is the empty mapping), else None.
        proxy: Whether the HTTP broker may pass requests to it.
        disabled: Configured but not to be connected.
        quarantined: Waits for its user: not to be connected, and nothing of it is shown to agents.
        approvals: Different people who must approve it.
        trust: Who approves what it lists after its first list; None for the gateway's own setting.
        connection: Whether its clients share one connection, or each has one on which the server can ask it.
        input_requests: Whether it may ask the user, the model or the roots of a client that lets itself be asked.
        shared: Whether one process of a stdio server serves all workers of this gateway, or each has its own.
        isolation: How the process of a stdio server is held.
        refusal: Why the entry cannot be used, and what to do about it; None for one that can.
        person: Whose connection it is for, where each person has one of their own; else empty.
        unknown: Keys of the entry that mean nothing here, with their values.
        raw: The entry as it was written.
        secrets: What `expand()` put in from the environment, files and the keyring.
    """

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    inherit: tuple[str, ...] = ()
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    timeout_ms: int | None = None
    limits: ServerLimits = ServerLimits()
    process_limits: ProcessLimits = ProcessLimits()
    tools: ToolFilter = ToolFilter()
    pin: tuple[str, ...] = ()
    oauth: Mapping[str, Any] | None = None
    proxy: bool = False
    disabled: bool = False
    quarantined: bool = False
    trust: Trust | None = None
    approvals: int = 1
    connection: ConnectionKind = "shared"
    input_requests: bool = False
    shared: bool = True
    isolation: Isolation = Isolation()
    refusal: tuple[str, str] | None = None
    person: str = ""
    # Not compared: a change in one of these is no reason to restart a server.
    unknown: Mapping[str, Any] = msgspec.field(default_factory=dict)
    raw: Mapping[str, Any] = msgspec.field(default_factory=dict)
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ServerConfig(name={self.name!r}, transport={self.transport!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServerConfig) and astuple(self)[:-3] == astuple(other)[:-3]

    @property
    def is_off(self) -> bool:
        """Whether it is not to be connected, and nothing of it is shown."""
        return self.disabled or self.quarantined or self.refusal is not None

    @property
    def is_personal(self) -> bool:
        """Whether each person has a sign-in and a connection of their own."""
        return self.oauth is not None and bool(self.oauth.get("per_user") or self.oauth.get("exchange"))

    @property
    def sign_in_place(self) -> tuple[str, str]:
        """Name and address under which a sign-in is stored, a person's own with a line end."""
        return self.name, f"{self.url}\n{self.person}" if self.person else self.url

    @property
    def credential_headers(self) -> tuple[str, ...]:
        """Names of the configured headers that seem to carry a token or key."""
        return tuple(name for name in self.headers if _CREDENTIAL.search(name))

    @property
    def can_use_oauth(self) -> bool:
        """Whether a stored sign-in is used: over HTTP, without an Authorization header or `"oauth": false`."""
        if self.transport == "stdio" or self.raw.get("oauth") is False or self.refusal is not None:
            return False
        return not any(name.lower() == "authorization" for name in self.headers)


def with_inherited(servers: Mapping[str, ServerConfig], names: tuple[str, ...]) -> dict[str, ServerConfig]:
    """The servers, each of which inherits these variables as well."""
    if not names:
        return dict(servers)
    return {name: replace(config, inherit=(*config.inherit, *names)) for name, config in servers.items()}


class Profile(msgspec.Struct, frozen=True):
    """A named subset of servers and tools.

    Attributes:
        name: Fit for an address: letters, digits, `.`, `_` and `-`.
        servers: Only these; empty for all.
        tools: Only tools that one of these case-sensitive globs matches, by canonical or own name; empty for all.
        pin: Tools that are always listed, by canonical name.
        groups: People of these groups of the identity provider are held to it.
        access: The most that tools called by them may do; None for reading.

    Source: docs/design/protocol-surface.md#profiles-and-pins
    """

    name: str
    servers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    pin: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    access: CallVariant | None = None

    def may_hold(self, server: str) -> bool:
        """Whether the profile may have any tool of this server; its globs may fit none that the server lists."""
        if self.servers and server not in self.servers:
            return False
        return not self.tools or any(_may_fit(glob, server) for glob in self.tools)

    def allows(self, server: str, tool: str) -> bool:
        """Whether the profile has this tool."""
        if self.servers and server not in self.servers:
            return False
        names = (tool, f"{server}:{tool}")
        return not self.tools or any(fnmatch.fnmatchcase(name, glob) for glob in self.tools for name in names)


def _may_fit(glob: str, server: str) -> bool:
    """Whether a profile's glob may fit a name of this server: its own part, or a URI, any server may have."""
    before, colon, after = glob.partition(":")
    return not colon or after.startswith("//") or fnmatch.fnmatchcase(server, before)


class Problem(msgspec.Struct, frozen=True):
    """Something in a server file that its owner should know.

    Attributes:
        server: Server it is about, None for the file as a whole.
        message: What is wrong, one sentence without secrets.
        hint: What to do about it.
        severity: error: this server is not used; warning: it is used all the same.
    """

    server: str | None
    message: str
    hint: str = ""
    severity: Literal["error", "warning"] = "warning"

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


class ServerFile(msgspec.Struct, frozen=True):
    """Contents of a server file.

    Attributes:
        servers: By name, in the file's order; one whose entry cannot be used has a `refusal`.
        problems: What its owner should know.
        source: Where it came from: a path, a variable, or empty if there is none.
        profiles: The profiles that can be used, by name.
    """

    servers: Mapping[str, ServerConfig]
    problems: tuple[Problem, ...] = ()
    source: str = ""
    profiles: Mapping[str, Profile] = msgspec.field(default_factory=dict)

    @property
    def usable(self) -> dict[str, ServerConfig]:
        """The servers whose entries can be used."""
        return {name: config for name, config in self.servers.items() if config.refusal is None}


class ServersDiff(msgspec.Struct, frozen=True):
    """Names of the servers that differ between two states of the configuration, in the newer one's order."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def diff(old: Mapping[str, ServerConfig], new: Mapping[str, ServerConfig]) -> ServersDiff:
    """Servers added, removed or changed; unknown keys and key order do not count."""
    return ServersDiff(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(name for name, config in new.items() if name in old and config != old[name]),
    )


def next_servers(file: ServerFile, current: Mapping[str, ServerConfig]) -> dict[str, ServerConfig]:
    """The servers of the file; one whose entry is broken stays as it is in `current`."""
    broken = file.servers.keys() - file.usable.keys()
    return {**file.servers, **{name: config for name, config in current.items() if name in broken}}
