"""REST: the gateway, its servers, and what is done with them, sign-ins included."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from starlette.requests import Request

from smart_mcp_proxy.desktop.present import JoinedClient
from smart_mcp_proxy.errors import ConfigError, ConflictError, ProxyError, RequestError, ServerNotFoundError
from smart_mcp_proxy.gateway import Gateway, GatewayStatus
from smart_mcp_proxy.gateway.activity.visitors import Visitor
from smart_mcp_proxy.gateway.admin.management import ServerChange, ServerImported, ServerPage, ServersView
from smart_mcp_proxy.gateway.admin.roles import REST, is_allowed
from smart_mcp_proxy.gateway.admin.server_sign_ins import ServerSignIn
from smart_mcp_proxy.gateway.shared.sessions import Session
from smart_mcp_proxy.greeting.eras import EVERY_ERA, StdioEras
from smart_mcp_proxy.models import ServerStatus
from smart_mcp_proxy.servers import SERVER_NAME, ServerConfig, explain_separation
from smart_mcp_proxy.web.rest.route import (
    SWITCH,
    Endpoint,
    build_choice_parameter,
    choice,
    decode_body,
    get_admitted,
    get_author,
    get_principal,
    integer,
    whole_number,
)

LOG_LINES = 50
LOG_LINES_MOST = 1000

# What the descriptions say of these, the handlers check, and word what does not fit.
_ServerName = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{SERVER_NAME}$"})]
_Entry = Annotated[
    dict[str, Any],
    msgspec.Meta(
        extra_json_schema={
            "anyOf": [{"required": [key], "properties": {key: {"type": "string"}}} for key in ("command", "url")]
        }
    ),
]
_Text = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1})]


class NewServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server to add: its name, and its entry as a server file has it."""

    name: _ServerName
    config: _Entry
    revision: str | None = None


class ServerPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change that is merged into a server's entry, and the revision of the file that it was made for."""

    config: dict[str, Any]
    revision: str | None = None


class ServerEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """New text of a server's entry, and the revision of the file that it was made for."""

    config: _Entry
    revision: str | None = None


class ImportText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text of a client's configuration."""

    text: _Text


class ServerLogs(msgspec.Struct, frozen=True):
    """The last lines that a server wrote for people, oldest first."""

    server: str
    lines: list[str]


async def _status(gateway: Gateway, request: Request) -> dict[str, Any]:
    status = gateway.status()
    if request.state.admitted is None:
        return {"version": status.version, "is_loaded": status.is_loaded, "is_settled": gateway.is_settled()}
    return {
        "version": status.version,
        "pid": status.pid,
        "generation": status.generation,
        "is_loaded": status.is_loaded,
        "is_settled": gateway.is_settled(),
        "tools": sum(status.tools.values()),
        "catalog_tokens": status.catalog_tokens,
        "degraded": list(status.degraded),
        "unmatched": list(status.unmatched),
        "embedded": None if status.embedded is None else dict(zip(("done", "total"), status.embedded, strict=True)),
        "sessions": [_session(session, gateway.stdio_eras) for session in status.sessions],
        "max_sessions": gateway.settings.max_sessions,
        "clients": [_visitor(visitor) for visitor in status.visitors],
        "joined": [_joined(client) for client in gateway.admin.joined],
        "keep_alive_s": gateway.admin.joined.keep_alive_s,
        "gateways": [{"id": one.id, "pid": one.pid, "servers": list(one.servers)} for one in status.gateways],
        "store": {"is_shared": status.is_shared, "clock_ahead_s": round(status.clock_ahead_s, 3)},
        "transport": gateway.settings.transport,
        "servers": _all(status, gateway.base.config.servers()),
    }


async def _list(gateway: Gateway, request: Request) -> ServersView:
    return await gateway.admin.management.servers()


async def _get_server(gateway: Gateway, request: Request) -> ServerPage:
    can_decide = is_allowed(get_admitted(request).role, REST[f"POST {_ONE}/approve"])
    is_review = choice(request, "review", SWITCH) == "true" and can_decide
    return await gateway.admin.management.server(_name(request), get_author(request), is_review=is_review)


async def _add(gateway: Gateway, request: Request) -> ServerChange:
    body = await decode_body(request, NewServer)
    return await gateway.admin.management.add(
        body.name, body.config, get_author(request), body.revision, principal=get_principal(request)
    )


async def _patch(gateway: Gateway, request: Request) -> ServerChange:
    body = await decode_body(request, ServerPatch)
    return await gateway.admin.management.patch(
        _name(request), body.config, get_author(request), body.revision, principal=get_principal(request)
    )


async def _replace(gateway: Gateway, request: Request) -> ServerChange:
    body = await decode_body(request, ServerEntry)
    return await gateway.admin.management.replace(
        _name(request), body.config, get_author(request), body.revision, principal=get_principal(request)
    )


async def _remove(gateway: Gateway, request: Request) -> ServerChange:
    revision = request.query_params.get("revision")
    return await gateway.admin.management.remove(
        _name(request), get_author(request), revision, principal=get_principal(request)
    )


async def _switch(gateway: Gateway, request: Request, *, is_enabled: bool) -> ServerChange:
    revision = request.query_params.get("revision")
    return await gateway.admin.management.switch(
        _name(request), get_author(request), revision, is_enabled=is_enabled, principal=get_principal(request)
    )


async def _approve(gateway: Gateway, request: Request) -> ServerChange:
    revision = request.query_params.get("revision")
    await gateway.admin.approvals.close_first_lists(_name(request))
    return await gateway.admin.management.approve_server(
        _name(request), get_author(request), revision, principal=get_principal(request)
    )


async def _restart(gateway: Gateway, request: Request) -> ServerChange:
    return await gateway.admin.management.restart(_name(request), get_author(request), principal=get_principal(request))


async def _refresh(gateway: Gateway, request: Request) -> ServerChange:
    return await gateway.admin.management.refresh(_name(request), get_author(request), principal=get_principal(request))


async def _import(gateway: Gateway, request: Request) -> ServerImported:
    body = await decode_body(request, ImportText)
    return await gateway.admin.management.import_text(body.text, get_author(request), principal=get_principal(request))


async def _logs(gateway: Gateway, request: Request) -> ServerLogs:
    lines = integer(request, "lines", LOG_LINES, 1, LOG_LINES_MOST)
    return ServerLogs(_name(request), await gateway.admin.management.logs(_name(request), lines))


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    return name


def _session(session: Session, eras: StdioEras) -> dict[str, Any]:
    """A connected client of the handshake era; the other era has no sessions."""
    client = session.client
    offered = eras if client.transport == "stdio" else EVERY_ERA
    return {
        "client": client.name,
        "version": client.version,
        "principal": client.principal.id,
        "route": session.route.kind,
        "reason": session.route.reason,
        "protocol_version": client.protocol_version,
        "transport": client.transport,
        "era_reason": offered.reason(client.name),
    }


def _visitor(visitor: Visitor) -> dict[str, Any]:
    """A client of the modern era that was here; that era is a client's own choice."""
    return {**visitor.visit._asdict(), "last_seen": round(visitor.last_s, 3), "is_waiting": visitor.under_way > 0}


def _joined(client: JoinedClient) -> dict[str, Any]:
    """A client that shares the gateway; its variables stay unsaid."""
    return {name: getattr(client, name) for name in ("pid", "version", "directory", "since_s", "name")}


def _all(status: GatewayStatus, configs: Mapping[str, ServerConfig]) -> list[dict[str, Any]]:
    tools, waiting = status.tools, status.waiting
    return [
        _server(server, tools.get(server.name, 0), waiting.get(server.name, 0))
        | {"separation": explain_separation(configs[server.name]) if server.name in configs else ""}
        for server in status.servers
    ]


def _server(server: ServerStatus, tools: int, waiting: int) -> dict[str, Any]:
    return {
        "name": server.name,
        "transport": server.transport,
        "state": server.state.value,
        "tools": tools,
        "waiting": waiting,
        "error": server.cause,
        "hint": server.hint,
        "era": server.era,
        "protocol_version": server.protocol_version,
        "server_info": server.server_info,
        "isolation": server.isolation,
        "restarts": server.restarts,
        "breaker": server.breaker,
        "severity": server.severity,
    }


_ONE = "/servers/{name:path}"
_LOGIN = "/servers/{name:path}/login"


_REVISION = {"revision": "Of the server file; the change is refused if it has another one by now."}
_EDITING: tuple[type[ProxyError], ...] = (RequestError, ConfigError)
"""Errors of a change of the server file: servers that come from no file, and a file that cannot be written."""
_OPERATING = (ServerNotFoundError, ConflictError)


def _change(
    method: Literal["POST", "PUT", "PATCH", "DELETE"],
    path: str,
    handler: Callable[[Gateway, Request], Awaitable[ServerChange]],
    summary: str,
    body: Any = None,
) -> Endpoint:
    """A route that changes one server's entry for a revision of the file, if the body has one."""
    query = _REVISION if body is None else {}
    failures = (*_EDITING, ServerNotFoundError, ConflictError)
    return Endpoint(method, path, handler, summary, ServerChange, body, query, failures=failures)


class SignInView(msgspec.Struct, frozen=True):
    """State of a sign-in to a server.

    Attributes:
        server: Configured name.
        state: none, waiting (for the person, at `url`), done or failed.
        url: Where the person signs in.
        problem: Why it failed.
        hint: What to do about it.
    """

    server: str
    state: str
    url: str
    problem: str
    hint: str


class Address(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The address at which a browser ended that could not reach the gateway's machine."""

    address: str


async def _begin_login(gateway: Gateway, request: Request) -> SignInView:
    name = _name(request)
    return _build_sign_in_view(name, await gateway.admin.server_sign_ins.begin(name, get_admitted(request).who.id))


async def _get_login_state(gateway: Gateway, request: Request) -> SignInView:
    name = _name(request)
    return _build_sign_in_view(name, await gateway.admin.server_sign_ins.of(name, get_admitted(request).who.id))


async def _take_address(gateway: Gateway, request: Request) -> SignInView:
    name = _name(request)
    body = await decode_body(request, Address)
    who = get_admitted(request).who
    return _build_sign_in_view(name, await gateway.admin.server_sign_ins.take(name, body.address.strip(), who.id))


def _build_sign_in_view(name: str, shown: ServerSignIn) -> SignInView:
    return SignInView(name, shown.state, shown.url, shown.problem, shown.hint)


ROUTES = (
    Endpoint("GET", "/status", _status, "The gateway and its servers; less without the token."),
    Endpoint("GET", "/servers", _list, "All servers, secrets masked.", ServersView),
    Endpoint("POST", "/servers", _add, "Adds a server.", ServerChange, NewServer, failures=(*_EDITING, ConflictError)),
    Endpoint(
        "POST", "/servers/import", _import, "Adds a client's servers.", ServerImported, ImportText, failures=_EDITING
    ),
    Endpoint(
        "GET",
        _ONE + "/logs",
        _logs,
        "The last lines of a server's stderr and log messages.",
        ServerLogs,
        query={"lines": whole_number(f"How many, 1 to {LOG_LINES_MOST} ({LOG_LINES}).", 1, LOG_LINES_MOST)},
        failures=(ServerNotFoundError,),
    ),
    _change("POST", _ONE + "/enable", partial(_switch, is_enabled=True), "Takes 'disabled' out of a server's entry."),
    _change("POST", _ONE + "/disable", partial(_switch, is_enabled=False), "Stops a server until it is enabled."),
    Endpoint("POST", _ONE + "/restart", _restart, "Connects a server anew.", ServerChange, failures=_OPERATING),
    Endpoint("POST", _ONE + "/refresh", _refresh, "Lists a server's tools again.", ServerChange, failures=_OPERATING),
    _change("POST", _ONE + "/approve", _approve, "Lifts a server's quarantine."),
    Endpoint(
        "GET",
        _ONE,
        _get_server,
        "One server, secrets masked; to its user, what a quarantined one would run is not.",
        ServerPage,
        query={
            "review": build_choice_parameter(
                "true: before an approval; what a quarantined server would run is not masked.", SWITCH
            )
        },
        failures=(ServerNotFoundError,),
    ),
    _change("PATCH", _ONE, _patch, "Merges a change into a server's entry.", ServerPatch),
    _change("PUT", _ONE, _replace, "Gives a server another entry.", ServerEntry),
    _change("DELETE", _ONE, _remove, "Removes a server."),
    Endpoint(
        "POST",
        _LOGIN,
        _begin_login,
        "Begins a sign-in to a server; a person finishes it at the address in the answer.",
        SignInView,
        failures=(ServerNotFoundError, ConfigError),
    ),
    Endpoint(
        "GET",
        _LOGIN,
        _get_login_state,
        "How far a sign-in to a server has come.",
        SignInView,
        failures=(ServerNotFoundError,),
    ),
    Endpoint(
        "POST",
        _LOGIN + "/address",
        _take_address,
        "Goes on with a sign-in whose browser ended at an address that it could not load.",
        SignInView,
        Address,
        failures=(ServerNotFoundError, ConflictError),
    ),
)
