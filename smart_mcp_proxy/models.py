"""The nouns that every room of the house shares. Values only: no I/O, no clock."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, Protocol, get_args

import msgspec

from smart_mcp_proxy.conditions import Severity

Transport = Literal["stdio", "http", "sse"]
"""Way to reach a server: http is MCP's streamable HTTP, sse the older transport of two endpoints."""
Era = Literal["handshake", "modern"]
"""handshake: protocol versions up to 2025-11-25, with `initialize`; modern: 2026-07-28, stateless."""

ContentKind = Literal["prompts", "resources", "templates", "skills"]
"""Kinds that servers list besides tools; templates are those of resources."""

ItemKind = Literal["tool", "prompt", "resource", "resource_template", "skill"]
"""Kinds that a search finds."""

CallVariant = Literal["read", "write", "destructive"]
"""Call tool, of the three, that was used, that is, what the agent's user may have agreed to beforehand."""


class ToolKey(NamedTuple):
    """A tool's identity: the server's configured name and the tool's own name on it."""

    server: str
    tool: str

    def __str__(self) -> str:
        return f"{self.server}:{self.tool}"


class ToolRecord(msgspec.Struct, frozen=True, gc=False):
    """Tool as the catalog holds it.

    A start creates all of them, and there are many.

    Attributes:
        id: Links catalog row, search document and vector; never reused.
        key: Server and tool name.
        listed_name: Legal, unique name under which a client may see the tool listed.
        raw: The definition exactly as the upstream sent it, as UTF-8 JSON text of one object.
        change_hash: Hex SHA-256 over everything an agent can see or call with, inside this server and name.
        digest: Approval digest, `"sha256:"` and 16 hex characters.
        annotations: The upstream's known hints, absent ones absent.
        examples: Questions that this tool answered before; not part of its definition.
    """

    id: int
    key: ToolKey
    listed_name: str
    raw: bytes
    change_hash: str
    digest: str
    annotations: Mapping[str, Any] = msgspec.field(default_factory=dict)
    examples: tuple[str, ...] = ()


Trust = Literal["manual", "scan", "trusted"]
"""Approver of what a server lists after its first list: the user, the scanner where it finds nothing, or nobody."""


class WithheldState(StrEnum):
    """Why a tool is kept from agents."""

    PENDING = "pending"
    """Never approved."""
    CHANGED = "changed"
    """Approved, with another definition than this one."""
    BLOCKED = "blocked"
    """Switched off by the user, whatever its definition says."""
    ALTERED = "altered"
    """Stored, or decided on, as no gateway with this one's key has written it."""


class Withheld(msgspec.Struct, frozen=True):
    """A tool that no agent sees: its definition waits for the user.

    Attributes:
        record: As its server lists it now.
        state: Why it is withheld.
        approved: The definition that was approved last, as JSON text; None where none was.
        approved_hash: Its change hash, empty where there is none.
    """

    record: ToolRecord
    state: WithheldState
    approved: bytes | None = None
    approved_hash: str = ""


class Submission(msgspec.Struct, frozen=True):
    """A listed definition that nobody approved yet, put to the policy of its server.

    Attributes:
        key: Server and tool name.
        change_hash: Of the definition.
        definition: As the server lists it.
        approved: The definition of this tool that was approved last; None where none was.
        is_on_file: Whether `approved` comes from the file; without it, it may be None for want of knowledge.
    """

    key: ToolKey
    change_hash: str
    definition: Mapping[str, Any]
    approved: Mapping[str, Any] | None
    is_on_file: bool = True


Review = Callable[[Submission], bool]
"""Whether a server's policy approves a definition in the user's place."""


@dataclass(frozen=True, slots=True)
class Document:
    """A tool, or one of the other kinds, for the search room.

    Attributes:
        id: The catalog's id of the tool.
        server: Server name.
        name: The tool's own name.
        title: Display title, or an empty string.
        description: Description, or an empty string.
        parameters: Pairs of parameter name and parameter description (may be empty).
        listed_name: The other form in which an agent may write the exact name.
        examples: Questions that this tool answered before.
        is_destructive: Whether it is marked as destroying or overwriting something.
        kind: What it is; one name may stand for one of each.
    """

    id: int
    server: str
    name: str
    title: str = ""
    description: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    listed_name: str = ""
    examples: tuple[str, ...] = ()
    is_destructive: bool = False
    kind: ItemKind = "tool"

    @property
    def mark(self) -> bytes:
        """Stands for all that it says: 16 bytes."""
        return hash_text(repr(self))


def hash_text(text: str) -> bytes:
    """Stands for a text wherever only whether it is the same is asked: 16 bytes."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Hit(msgspec.Struct, frozen=True):
    """Search result; a dataclass would take six times as long to create.

    Attributes:
        id: The document's id.
        score: How well it fits, in [0, 1].
        why: What made the score, for people: for example matched terms per field.
    """

    id: int
    score: float
    why: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Intent(msgspec.Struct, frozen=True):
    """The agent's statement about a call."""

    reason: str = ""
    data_sensitivity: str = "unknown"
    operation_type: str | None = None


Role = Literal["viewer", "operator", "approver", "admin"]
"""Rights beside calling tools, by role; each includes those before it."""
ROLES: tuple[Role, ...] = get_args(Role)


class Reach(msgspec.Struct, frozen=True):
    """Reach of a principal: what lies beyond does not exist for it.

    Attributes:
        servers: Names of the servers it may know of; None for all.
        access: The most that a tool it sees may do, by the call tool that the tool asks for.
        profile: The profile it is held to wherever it comes in; None for none.
        person: Of servers at which each person signs in, what was listed to this principal alone; empty for all.
    """

    servers: frozenset[str] | None = None
    access: CallVariant = "destructive"
    profile: str | None = None
    person: str = ""


WHOLE = Reach()


class Principal(msgspec.Struct, frozen=True):
    """On whose behalf a request is made.

    Attributes:
        id: `local`, `token`, the id of an agent token, or issuer and subject of a signed one.
        reach: How far it reaches.
        role: What it may do at the page and over REST; None for nothing, and for no bounds but the reach over MCP.
        name: What people call it; empty without a role.
        made_by: Id of the person who made the token that it holds; empty where nobody signed in for that.
    """

    id: str
    reach: Reach = WHOLE
    role: Role | None = None
    name: str = ""
    made_by: str = ""


LOCAL = Principal("local")
"""Anybody on this machine: the client of a pipe, and on a loopback address whoever sends no token."""


class ProgressReport(msgspec.Struct, frozen=True):
    """Progress report of a running call, with the fields of `notifications/progress`."""

    progress: float
    total: float | None = None
    message: str | None = None

    def build_params(self, token: int | str | None) -> dict[str, Any]:
        """The notification's parameters, for the request with this token."""
        told = {"progressToken": token, "progress": self.progress, "total": self.total, "message": self.message}
        return {name: value for name, value in told.items() if value is not None}


OnProgress = Callable[[ProgressReport], Awaitable[None]]
OnMessage = Callable[[bytes], Awaitable[None]]
"""Takes a notification that belongs to one request, as the server wrote it."""


class ClientLine(Protocol):
    """Back-channel to a handshake-era client, on a request's stream or outside of any."""

    @property
    def client(self) -> object:
        """Stands for the client for as long as it is connected: the same on all its lines."""

    async def ask(self, method: str, params: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The client's result.

        Raises:
            RequestError: It cannot be asked, did not answer in time, or answered with an error, which `data` holds as
                `client_code` and `client_message`.
        """

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Sends it a notification; one that cannot be delivered is dropped."""


AskClient = Callable[[str, Mapping[str, Any], float], Awaitable[Mapping[str, Any]]]
"""Asks a client: method, params, and the seconds that it may take; gives its result as it sent it."""


class ClientInput(msgspec.Struct, frozen=True):
    """Ways to ask the client behind one request while it is served.

    Attributes:
        capabilities: What it declared that it can be asked for: elicitation, sampling, roots, as it wrote them.
        ask: Asks a client of the handshake era; None in the modern era, where questions are results.
        responses: What a modern client answers to the questions it got before, by their keys.
        state: What it was given together with them.
        pending: Questions that a client of the handshake era is to be asked first, as a result's JSON text.
    """

    capabilities: Mapping[str, Any]
    ask: AskClient | None = None
    responses: Mapping[str, Any] | None = None
    state: str | None = None
    pending: bytes | None = None


class CallRequest(msgspec.Struct, frozen=True):
    """Call of an upstream tool, for any caller and over any transport.

    Attributes:
        name: The tool as the caller wrote it: canonical or listed.
        arguments: Arguments by parameter name.
        variant: The call tool that was used; None where the caller is the user (command line).
        intent: What the agent said about it.
        is_checked: Whether the arguments must fit the tool's schema; else the server alone judges them.
        principal: On whose behalf.
        session: The caller's session, where it has one.
        digest: Definition the caller saw; a different one now refuses the call.
        keeps_uris: Whether the caller knows the server's resources by the server's own URIs.
        meta: The caller's `_meta`, already free of connection keys.
        on_progress: Where progress goes; None if nobody asked for it.
        on_message: Where the notifications go that come on the call's own exchange, progress among them, on transports
            where each call has one; None if nobody asked for them.
        parent: Id of the activity record of the call that this one is a part of; None where it stands alone.
        line: The way back to the caller, for what the server asks it meanwhile; None where there is none.
        input: How its client can be asked for more; None where nobody can be.
        extensions: What its client declares of extensions; None where nothing.
        is_root: Whether it is all that was asked for, and no part of an agent's call, which has a span already.
    """

    name: str
    arguments: Mapping[str, Any]
    variant: CallVariant | None
    intent: Intent = Intent()
    is_checked: bool = True
    principal: str = "local"
    session: str | None = None
    digest: str | None = None
    keeps_uris: bool = False
    meta: Mapping[str, Any] = msgspec.field(default_factory=dict)
    on_progress: OnProgress | None = None
    on_message: OnMessage | None = None
    parent: str | None = None
    line: ClientLine | None = None
    input: ClientInput | None = None
    extensions: Mapping[str, Mapping[str, Any]] | None = None
    is_root: bool = False


class Decision(msgspec.Struct, frozen=True):
    """Policy's answer: may the call happen, and if not why, and what then."""

    allowed: bool
    reason: str = ""
    hint: str = ""


class ServerState(StrEnum):
    """The states of a configured server."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    ERROR = "error"
    NEEDS_ENV = "needs_env"
    NEEDS_AUTH = "needs_auth"
    QUARANTINED = "quarantined"
    DISABLED = "disabled"


PENDING_STATES = frozenset({ServerState.CONNECTING, ServerState.DISCONNECTED, ServerState.AUTHENTICATING})
"""States that a server leaves by itself: its first list may still come."""


class ServerStatus(msgspec.Struct, frozen=True):
    """A server at a glance.

    Attributes:
        name: Configured name.
        transport: stdio, http or sse.
        state: Current state.
        error: Why it is not ready, one sentence without secrets; empty when it is.
        hint: What the user can do about it.
        era: Negotiated protocol era, None before the first connection.
        protocol_version: Negotiated version, empty before the first connection.
        server_info: What the server calls itself (name, version), for display only.
        restarts: Connections made after the first one.
        breaker: closed, or open or half_open while calls are held back because the server keeps failing.
        last_error: Why the last try failed, while the next one is under way.
        severity: How bad what `error` says of a server that is ready is; empty where nothing is known.
        reason: What agents are told of its condition; empty where its state says all.
        isolation: How its process is held: none, sandbox or container; empty where it is no process of ours.
    """

    name: str
    transport: Transport
    state: ServerState
    error: str = ""
    hint: str = ""
    era: Era | None = None
    protocol_version: str = ""
    server_info: str = ""
    restarts: int = 0
    breaker: str = "closed"
    last_error: str = ""
    severity: Severity = ""
    reason: str = ""
    isolation: str = ""

    @property
    def cause(self) -> str:
        """`error`, and while the server is tried again why that failed the last time."""
        last = f"The last try failed: {self.last_error}" if self.last_error else ""
        return " ".join(filter(None, (self.error, last)))
