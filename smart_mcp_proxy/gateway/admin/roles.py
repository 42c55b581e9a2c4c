"""Table of operations at the page, over REST, by commands and over MCP, each with its least role."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from smart_mcp_proxy.errors import RefusedError
from smart_mcp_proxy.models import LOCAL, ROLES, CallVariant, Principal, Role
from smart_mcp_proxy.servers import Author

_SERVER: Final = "/servers/{name:path}"


class RoleOperation(NamedTuple):
    """A row of the table.

    Attributes:
        what: It does, in words.
        least: The least role that may do it; None for anybody who may connect.
        rest: Routes below `/api/v1`.
        page: Routes below `/ui`.
        commands: Of `mcpproxy`.
        mcp: Tools, for those whose role came from a group or with a token; an operation of one behind a blank.
        is_own: Whether it shows and changes what is the sender's own, so that any token of theirs will do.
    """

    what: str
    least: Role | None
    rest: tuple[str, ...] = ()
    page: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    is_own: bool = False

    @property
    def is_open(self) -> bool:
        """Whether somebody who says nothing of themselves may do it."""
        return self.least is None and not self.is_own


OPERATIONS: Final[tuple[RoleOperation, ...]] = (
    RoleOperation("See whether the gateway runs", None, ("GET /status",), (), ("status",)),
    RoleOperation(
        "See one's own sign-ins at servers, and forget them",
        None,
        ("GET /sign-ins", "DELETE /sign-ins/{name:path}"),
        ("GET /sign-ins", "POST /sign-ins/forget"),
        ("login --list", "server logout"),
        is_own=True,
    ),
    RoleOperation(
        "Search, and look at tools and servers",
        "viewer",
        (
            *("GET /search", "GET /check", "GET /tools", "GET /listing", "GET /tools/{name:path}", "GET /profiles"),
            *("GET /servers", f"GET {_SERVER}", f"GET {_SERVER}/login", "POST /page/links"),
        ),
        ("GET /", "GET /search", "GET /tools", "GET /tool", "GET /servers", "POST /leave"),
        ("search", "check", "tool", "server list", "server show", "ui"),
        ("retrieve_tools", "describe_tool", "read_output"),
    ),
    RoleOperation(
        "Read the activity log and the figures",
        "viewer",
        ("GET /activity", "GET /activity/{id}", "GET /stats", "GET /events", "GET /metrics"),
        ("GET /activity", "GET /record", "GET /events"),
        ("activity", "stats"),
    ),
    RoleOperation(
        "Read what waits for approval",
        "viewer",
        ("GET /approvals", "GET /approvals/{name:path}"),
        ("GET /waiting",),
        ("approve --list",),
    ),
    RoleOperation("Call tools that read", "viewer", mcp=("call_tool_read",)),
    RoleOperation(
        "Call any tool",
        "operator",
        ("POST /call",),
        ("POST /tool/call",),
        ("call",),
        ("call_tool_write", "call_tool_destructive"),
    ),
    RoleOperation(
        "Read servers' logs, entries and the settings",
        "operator",
        (f"GET {_SERVER}/logs", "GET /config", "GET /settings"),
        ("GET /server", "GET /settings"),
        ("server logs", "config"),
        ("upstream_servers list", "upstream_servers tail_log"),
    ),
    RoleOperation(
        "Restart, refresh, enable and disable servers",
        "operator",
        tuple(f"POST {_SERVER}/{verb}" for verb in ("restart", "refresh", "enable", "disable")),
        ("POST /server/operate",),
        ("server restart", "server refresh", "server enable", "server disable"),
        tuple(f"upstream_servers {verb}" for verb in ("restart", "refresh", "enable", "disable")),
    ),
    RoleOperation(
        "Sign in to servers, and forget learned questions",
        "operator",
        (f"POST {_SERVER}/login", f"POST {_SERVER}/login/address", "DELETE /examples"),
        ("POST /server/login", "POST /server/login/address", "POST /tool/forget"),
        ("server login",),
    ),
    RoleOperation(
        "Approve and block tools, and lift the quarantine of servers",
        "approver",
        ("POST /approvals/approve", "POST /approvals/block", "POST /approvals/unblock", f"POST {_SERVER}/approve"),
        ("POST /approve", "POST /approve/together", "POST /block", "POST /unblock"),
        ("approve", "block", "server approve"),
    ),
    RoleOperation(
        "Add, change and remove servers",
        "admin",
        ("POST /servers", "POST /servers/import", f"PATCH {_SERVER}", f"PUT {_SERVER}", f"DELETE {_SERVER}"),
        ("GET /servers/new", "POST /servers/add", "POST /server/edit", "POST /server/remove"),
        ("server add", "server remove", "server isolate", "server allow"),
        tuple(f"upstream_servers {verb}" for verb in ("add", "update", "patch", "remove", "import")),
    ),
    RoleOperation(
        "Make and revoke tokens, and believe decisions whose seals are lost",
        "admin",
        ("GET /tokens", "POST /tokens", "DELETE /tokens/{name:path}", "POST /approvals/reseal"),
        ("GET /clients", "POST /tokens", "POST /tokens/revoke"),
        ("token create", "token list", "token revoke"),
    ),
)
REST: Final[Mapping[str, RoleOperation]] = {route: row for row in OPERATIONS for route in row.rest}
PAGE: Final[Mapping[str, RoleOperation]] = {route: row for row in OPERATIONS for route in row.page}
MCP: Final[Mapping[str, RoleOperation]] = {tool: row for row in OPERATIONS for tool in row.mcp}


class Admitted(NamedTuple):
    """Somebody who is let in as an operator.

    Attributes:
        author: How far changes of theirs are trusted.
        role: What they may do; None where that is what concerns themselves alone.
        principal: Who they are; None for whoever has the operator's token or the gateway's own user.
    """

    author: Author
    role: Role | None = "admin"
    principal: Principal | None = None

    @property
    def id(self) -> str:
        """By which records name them."""
        return self.author if self.principal is None else self.principal.id

    @property
    def person(self) -> str:
        """The id that a person has in common with the tokens that they made."""
        return LOCAL.id if self.principal is None else self.principal.made_by or self.principal.id

    @property
    def who(self) -> Principal:
        """The principal whose sign-ins at servers are theirs."""
        return self.principal or LOCAL

    @property
    def name(self) -> str:
        """By which people know them."""
        return LOCAL.id if self.principal is None else self.principal.name or self.principal.id


NETWORK: Final = Admitted("web")
"""Holder of the operator's token."""
OWNER: Final = Admitted("operator")
"""The user whose gateway it is."""


def is_allowed(role: Role | None, operation: RoleOperation) -> bool:
    """Whether somebody with a role, or with none, may do this."""
    return operation.least is None or (role is not None and ROLES.index(role) >= ROLES.index(operation.least))


def require_role(role: Role | None, operation: RoleOperation) -> None:
    """Pass if somebody with this role may do this: the one place that decides it.

    Raises:
        RefusedError: Their role does not include it.
    """
    if not is_allowed(role, operation):
        raise RefusedError(
            f"{operation.what}: this needs the role {operation.least}, and yours is {role or 'none'}.",
            hint="Ask whoever runs the gateway for a token or a group with that role.",
            code="role_required",
            data={"needed": operation.least, "role": role},
        )


def find_access(role: Role) -> CallVariant:
    """The most that tools called by somebody with this role may do."""
    return "destructive" if is_allowed(role, MCP["call_tool_destructive"]) else "read"
