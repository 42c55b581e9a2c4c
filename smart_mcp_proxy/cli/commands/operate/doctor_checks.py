"""Checks of `mcpproxy doctor`, each a list of findings."""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from anyio import to_thread

from smart_mcp_proxy.catalog import NO_ROOM_HINT, UNSEALED, is_full, reach_store, why_unwritable
from smart_mcp_proxy.cli.commands.machine.other_programs import older_package, other_programs
from smart_mcp_proxy.cli.commands.operate.client_summary import summarize_clients
from smart_mcp_proxy.cli.support.access import open_api
from smart_mcp_proxy.cli.support.api import find_running_gateways
from smart_mcp_proxy.cli.support.failure import extract_command
from smart_mcp_proxy.cli.support.output import format_waiting_count, plural
from smart_mcp_proxy.desktop.spelling import explain_passing, find_program
from smart_mcp_proxy.errors import ConfigError, ProxyError
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.policy.limits import LEAST_RATE_PER_S
from smart_mcp_proxy.servers import ServerFile, load_configured_servers
from smart_mcp_proxy.settings import Settings, environment
from smart_mcp_proxy.web.auth.sign_in import is_sign_in_enabled
from smart_mcp_proxy.web.auth.signed_tokens import create_jwt_verifier
from smart_mcp_proxy.web.listening import bind

_DATA_DIR = "data directory"
_DATABASE = "database"
_NEARLY_FULL: Final = 0.8
"""Share of the sessions that a gateway keeps open."""
_SAME_S: Final = 1.0
_NAMED: Final = 10
"""Servers or gateways that one message names; the rest is counted."""
_UNSAID = {
    "connecting": "it has not answered yet, and is waited for; a first start may take minutes to fetch its package.",
    "authenticating": "its sign-in is being renewed.",
    "disconnected": "it has not been connected to yet.",
}
"""States that have no error to show."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Outcome of one check of `mcpproxy doctor`.

    Attributes:
        subject: What: config, a server's name, ...
        outcome: Whether it is as it should be; a warning does not make the check fail.
        message: What was found.
        hint: What to do about it.
        command: The command that helps if it fails.
    """

    subject: str
    outcome: Literal["ok", "warning", "fail"]
    message: str
    hint: str = ""
    command: str = "mcpproxy config show --origin"


async def examine(settings: Settings) -> list[CheckResult]:
    """Looks at everything; connects to the servers unless a running gateway already has."""
    running = [status for _, status in await find_running_gateways(settings.data_dir)]
    findings = [*_address(settings, is_running=bool(running)), *_instances(running), _data_dir(settings.data_dir)]
    findings = [*_programs(), *findings, *await _database(settings)]
    try:
        file = await to_thread.run_sync(load_configured_servers, settings, Path.cwd())
    except ConfigError as error:
        return [CheckResult("config", "fail", error.message, error.hint, "mcpproxy config path"), *findings]
    clients = await to_thread.run_sync(_clients, settings)
    findings = [*_config(file), *findings, *clients, *await to_thread.run_sync(_packages, settings)]
    has_place = all(one.outcome != "fail" for one in findings if one.subject in (_DATA_DIR, _DATABASE))
    if not running and not (file.servers and has_place):
        return findings
    return [*findings, *await _servers(settings, file)]


def _programs() -> Iterator[CheckResult]:
    """Whether clients that start `mcpproxy` by its name get this program."""
    hint = f"Start this one by its path: {' '.join(find_program())}"
    if passing := explain_passing(sys.prefix):
        message, _, advice = passing.rpartition(". ")
        yield CheckResult("program", "warning", f"{message}.", f"{advice}.")
    if version := older_package():
        words = f"The installed package smart-mcp-proxy {version} is an older, other program of this name"
        yield CheckResult("program", "warning", f"{words}.", f"Install this one from its checkout or wheel. {hint}")
    for path in other_programs(environment()):
        yield CheckResult("program", "warning", f"{path} is another program of this name.", hint)


def _config(file: ServerFile) -> Iterator[CheckResult]:
    if file.source:
        yield CheckResult("config", "ok", f"{file.source}: {plural(len(file.servers), 'server')}")
    for problem in file.problems:
        outcome: Literal["warning", "fail"] = "fail" if problem.severity == "error" else "warning"
        yield CheckResult(problem.server or "config", outcome, problem.message, problem.hint, "mcpproxy config path")


def _clients(settings: Settings) -> list[CheckResult]:
    """Servers of MCP clients that the gateway does not have, and client files that cannot be read."""
    users, project, problems = summarize_clients(settings, Path.cwd())
    found = [
        CheckResult("clients", "ok", f"{sentence}.", "Look at them: mcpproxy init")
        for sentence in (users, project)
        if sentence
    ]
    return [*found, *(CheckResult("clients", "warning", problem) for problem in problems)]


def _data_dir(data_dir: Path) -> CheckResult:
    subject = _DATA_DIR
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        refusal = why_unwritable(data_dir)
    except OSError as exc:
        refusal = exc
    if refusal is None:
        return CheckResult(subject, "ok", f"{data_dir} can be written")
    hint = NO_ROOM_HINT if is_full(refusal) else "Set MCPPROXY_DATA_DIR to a directory that you can write to."
    return CheckResult(subject, "fail", f"{data_dir} cannot be written: {refusal.strerror}.", hint)


async def _database(settings: Settings) -> list[CheckResult]:
    """Whether the database of many gateways can be used."""
    if settings.database_url is None:
        return []
    try:
        label = await reach_store(settings.database_url.get_secret_value(), settings.data_dir)
    except ConfigError as error:
        return [CheckResult(_DATABASE, "fail", error.message, error.hint, "mcpproxy config show --origin")]
    return [CheckResult(_DATABASE, "ok", f"{label} can be used")]


def _address(settings: Settings, *, is_running: bool) -> Iterator[CheckResult]:
    """Whether HTTP could be served; a failure only where the settings ask for HTTP."""
    outcome: Literal["warning", "fail"] = "warning" if settings.transport == "stdio" or is_running else "fail"
    place = f"{settings.host}:{settings.port}"
    try:
        bind(settings.host, settings.port).close()
    except ConfigError as error:
        hint = "The running gateway may be what uses it." if is_running else error.hint
        if commands := getattr(error, "__notes__", []):
            hint = f"{hint} Its page: {commands[0]}"
        yield CheckResult("address", outcome, error.message, hint)
    else:
        yield CheckResult("address", "ok", f"{place} is free" if settings.port else f"{settings.host}, any free port")
    try:
        create_jwt_verifier(settings)
        is_sign_in_enabled(settings)
    except ConfigError as error:
        yield CheckResult("sign-in", outcome, error.message, error.hint)


def _packages(settings: Settings) -> list[CheckResult]:
    """Find packages that the settings need and that are not installed."""
    # Here and not above: importing them takes a while that other commands are spared.
    from smart_mcp_proxy.gateway.engines import list_missing_extras

    command = "mcpproxy config show --origin"
    return [
        CheckResult("packages", "fail", error.message, error.hint, command)
        for error in list_missing_extras(settings, environment())
    ]


def _instances(running: list[dict[str, Any]]) -> Iterator[CheckResult]:
    for status in running:
        words = f"process {status['pid']}, version {status['version']}, {plural(len(status['servers']), 'server')}"
        yield CheckResult("running gateway", "ok", words)
        if embedded := status.get("embedded"):  # a gateway of an earlier version does not say it
            yield CheckResult("search", "ok", f"{embedded['done']} of {plural(embedded['total'], 'tool')} embedded")
        for reason in status["degraded"]:
            yield CheckResult("search", "warning", f"{reason.removesuffix('.')}.")
        yield from _room(status)
        for session in status.get("sessions", ()):  # a gateway of an earlier version has none
            yield CheckResult("client", "ok", _session(session))
        for client in status.get("clients", ()):  # likewise
            yield CheckResult("client", "ok", _visit(client))
    if not running:
        yield CheckResult("running gateway", "ok", "none")


def _room(status: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Find a gateway that will soon refuse clients of the handshake era for want of room."""
    count = sum(session.get("transport") != "stdio" for session in status.get("sessions", ()))
    most = status.get("max_sessions")  # a gateway of an earlier version does not say it
    if most is not None and count >= _NEARLY_FULL * most:
        words = f"{count:,} of {most:,} sessions are open; one more than that is refused while none is idle for 60 s"
        yield CheckResult("sessions", "warning", words, "Raise MCPPROXY_MAX_SESSIONS: a session takes 50 KB.")


def _session(client: Mapping[str, Any]) -> str:
    """A client of the handshake era: how it gets at tools, and why it speaks that era."""
    name = f"{client['client'] or 'a client without a name'} {client['version']}".rstrip()
    way = f"{name} gets {client['route']}: {client['reason']}"
    if "era_reason" not in client:  # a gateway of an earlier version does not say it
        return way
    return f"{way}. It speaks {client['protocol_version']} over {client['transport']}: {client['era_reason']}"


def _visit(client: Mapping[str, Any]) -> str:
    """A client of the modern era, which has no session, as it was last seen."""
    name = f"{client['client'] or 'a client without a name'} {client['version']}".rstrip()
    place = f" at /mcp/{client['path']}" if client["path"] else ""
    seen = "is there now" if client["is_waiting"] else f"was last seen {_moment(client['last_seen'])}"
    return f"{name} ({client['protocol_version']}, {client['transport']}{place}) has no session; it {seen}"


def _moment(at_s: float) -> str:
    """A time of the past, for people."""
    return datetime.fromtimestamp(at_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


async def _servers(settings: Settings, file: ServerFile) -> list[CheckResult]:
    """Each server's state, as the running gateway or one of our own sees it."""
    try:
        async with open_api(settings, file.servers) as api:
            status = await api.status()
            approvals, tokens = await api.approvals(), await api.tokens()
    except ProxyError as error:
        return [CheckResult("gateway", "fail", error.message, error.hint)]
    refused = {name for name, config in file.servers.items() if config.refusal is not None}  # `_config` has said why
    servers = [_server(server) for server in status["servers"] if server["name"] not in refused]
    # A gateway of an earlier version does not say what is unmatched.
    unmatched = (CheckResult("config", "warning", sentence) for sentence in status.get("unmatched", ()))
    found = [*servers, *unmatched, *gateway_findings(settings, file, status), _check_approvals(approvals)]
    if approvals.get("is_sealed", True):
        found += _check_tokens(tokens)
    return [*found, *_check_altered(approvals), *_check_isolation(status["servers"])]


def _check_approvals(approvals: Mapping[str, Any]) -> CheckResult:
    """Count what waits for the user's approval."""
    if not approvals.get("is_sealed", True):  # a gateway of an earlier version does not say it
        return CheckResult("approvals", "fail", UNSEALED, "", "mcpproxy approve --reseal")
    altered = [tool["name"] for tool in approvals["tools"] if tool["state"] == "altered"]
    if altered:
        words = f"changed in the catalog by something else than a gateway, and withheld: {', '.join(altered)}"
        hint = "Find out what writes to the catalog, then look at each, and approve it by name."
        return CheckResult("approvals", "warning", words, hint, "mcpproxy approve --list")
    count = sum(tool["state"] != "blocked" for tool in approvals["tools"])
    if not count:
        return CheckResult("approvals", "ok", "nothing waits")
    words = f"{format_waiting_count(count)}; agents do not see {'it' if count == 1 else 'them'}."
    return CheckResult("approvals", "warning", words, "Look at what is new or changed.", "mcpproxy approve --list")


def _check_tokens(tokens: Sequence[Mapping[str, Any]]) -> Iterator[CheckResult]:
    """Warn of tokens whose rows do not carry the gateway's seal."""
    names = [one["name"] for one in tokens if one.get("is_altered") and one["revoked_s"] is None]
    if names:
        words = f"changed in the catalog by something else than a gateway, and open nothing: {', '.join(names)}"
        hint = "Find out what writes to the catalog, revoke them, and make others."
        yield CheckResult("tokens", "warning", words, hint, "mcpproxy token list")


def _check_altered(approvals: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Warn of servers of which something else than a gateway has written that they may run unconfined."""
    if names := approvals.get("altered_servers"):  # a gateway of an earlier version does not say it
        words = "recorded as run before there was a sandbox by something else than a gateway, and taken for new"
        command = f"mcpproxy server isolate {' '.join(map(shell_word, names))}"
        hint = f"Find out what writes to the catalog, then say in their entries how they are held: {command}"
        yield CheckResult("isolation", "warning", f"{words}: {', '.join(names)}", hint)


def _check_isolation(servers: Sequence[Mapping[str, Any]]) -> Iterator[CheckResult]:
    """Say how the servers that are processes here are held; warn of those that can approve themselves."""
    # Here and not above: see `_packages`.
    from smart_mcp_proxy.upstream import describe_gaps, find_way

    held: defaultdict[str, list[str]] = defaultdict(list)
    for server in servers:
        if server["state"] != "disabled":
            held[server.get("isolation", "")].append(server["name"])  # a gateway of an earlier version does not say it
    way, free = find_way(), held["none"]
    can = f"{_abbreviate_names(free)} can approve {'itself' if len(free) == 1 else 'themselves'}"
    kinds = (
        ("sandbox", f"in a sandbox ({way or 'which this system has not'})"),
        ("container", "in a container"),
        ("none", f"with your rights: {can}"),
    )
    found = ", ".join(f"{len(held[mode])} {words}" for mode, words in kinds if held[mode])
    if not found:
        return
    gaps = "".join(f" A server in the sandbox has a gap that newer kernels close: {gap}." for gap in describe_gaps())
    hint = f"See what a sandbox would refuse: mcpproxy server isolate {' '.join(map(shell_word, free))} --dry-run"
    if way is None:
        hint = "Install bubblewrap, if there is one for this system."
    yield CheckResult("isolation", "warning" if free else "ok", f"{found}.{gaps}", hint if free else "")


def _server(server: Mapping[str, Any]) -> CheckResult:
    name, state = server["name"], server["state"]
    if state == "ready" and server["breaker"] != "closed":
        message = f"ready, but {server['error'][:1].lower()}{server['error'][1:]}"
        return CheckResult(name, "warning", message, server["hint"], f"mcpproxy server logs {shell_word(name)}")
    if state == "ready":
        outcome: Literal["ok", "warning"] = "ok"
        message = f"ready, {plural(server['tools'], 'tool')}"
        if count := server.get("waiting", 0):  # a gateway of an earlier version does not say it
            outcome, message = "warning", f"{message} in use, and {count} {'waits' if count == 1 else 'wait'} for you"
        if server.get("severity"):  # likewise
            outcome, message = "warning", f"{message}. {server['error']}"
        return CheckResult(name, outcome, message, server["hint"], f"mcpproxy approve {shell_word(name)} --diff")
    if state == "disabled":
        return CheckResult(name, "ok", "disabled")
    if state == "quarantined":
        message = "quarantined: it waits for your approval and is not started"
        return CheckResult(name, "warning", message, server["hint"], f"mcpproxy server approve {shell_word(name)}")
    message = f"{state}: {server['error'] or _UNSAID.get(state, 'nothing is known of why')}"
    # What was never started has written no log.
    command = f"mcpproxy server {'show' if state in ('needs_auth', 'needs_env') else 'logs'} {shell_word(name)}"
    return CheckResult(name, "fail", message, server["hint"], extract_command(server["hint"]) or command)


def gateway_findings(settings: Settings, file: ServerFile, status: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Look at what a gateway's status says of those that share its store.

    A gateway of an earlier version does not say it.
    """
    gateways: Sequence[Mapping[str, Any]] = status.get("gateways", ())
    store: Mapping[str, Any] = status.get("store", {})
    if len(gateways) > 1:
        words = f"{len(gateways)} share the store; each lets its share of every limit through"
        yield CheckResult("gateways", "ok", words)
        yield from _limits(settings, file, gateways)
        yield from _compare_server_files(gateways, is_shared=bool(store.get("is_shared")))
    if store.get("is_shared"):
        yield _clocks(store.get("clock_ahead_s", 0.0))


def _limits(settings: Settings, file: ServerFile, gateways: Sequence[Mapping[str, Any]]) -> Iterator[CheckResult]:
    """Name limits that cannot be divided: each gateway lets through one call, so that all exceed them."""
    number, raise_it = len(gateways), "Raise it to as many at least, or run fewer gateways."
    for variable, limit in (("MCPPROXY_IN_FLIGHT", settings.in_flight), ("MCPPROXY_CALLS_BURST", settings.calls_burst)):
        if 0 < limit < number:
            yield CheckResult("limits", "warning", _too_small(f"{variable} is {limit}", number), raise_it)
    if 0 < settings.calls_per_s < number * LEAST_RATE_PER_S:
        yield CheckResult(
            "limits", "warning", _too_slow("MCPPROXY_CALLS_PER_S", settings.calls_per_s, number), raise_it
        )
    for server in file.servers.values():
        sharing = sum(server.name in gateway["servers"] for gateway in gateways)
        limits, command = server.limits, "mcpproxy config path"
        for key, most in (("in_flight", limits.in_flight), ("burst", limits.burst)):
            if most is not None and most < sharing:
                yield CheckResult(server.name, "warning", _too_small(f"'{key}' is {most}", sharing), raise_it, command)
        if limits.calls_per_s is not None and limits.calls_per_s < sharing * LEAST_RATE_PER_S and sharing > 1:
            message = _too_slow("'calls_per_s'", limits.calls_per_s, sharing)
            yield CheckResult(server.name, "warning", message, raise_it, command)


def _too_small(what: str, gateways: int) -> str:
    return (
        f"{what}, less than the {gateways} gateways that share it: each lets one call through, {gateways} in all at "
        "the same time."
    )


def _too_slow(what: str, rate_per_s: float, gateways: int) -> str:
    return (
        f"{what} is {rate_per_s:g}, less than a call a minute for each of the {gateways} gateways that share it: all "
        "together exceed it."
    )


def _compare_server_files(gateways: Sequence[Mapping[str, Any]], *, is_shared: bool) -> Iterator[CheckResult]:
    """Name the servers that some gateways have in their server files and others have not.

    Several programs of one person often differ so; replicas of one service should not.
    """
    having: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)
    for name in sorted({name for gateway in gateways for name in gateway["servers"]}):
        having[tuple(place for place, gateway in enumerate(gateways) if name in gateway["servers"])].append(name)
    for places, names in having.items():
        if len(places) == len(gateways):
            continue
        have = [_gateway(gateways[place]) for place in places]
        lack = [_gateway(gateway) for place, gateway in enumerate(gateways) if place not in places]
        owners, others = _abbreviate_names(have), _abbreviate_names(lack)
        message = f"{_abbreviate_names(names)}: in the server file of {owners}, not of {others}; each serves its own."
        hint = "Give all of them one server file, unless they are meant to differ." if is_shared else ""
        yield CheckResult("server files", "warning" if is_shared else "ok", message, hint, "mcpproxy config path")


def _gateway(gateway: Mapping[str, Any]) -> str:
    """A gateway by the number that the store gave it: process ids repeat on other machines."""
    return f"gateway {gateway['id']} (process {gateway['pid']})"


def _abbreviate_names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return f"{', '.join(names[:_NAMED])} and {more} more" if more > 0 else ", ".join(names)


def _clocks(ahead_s: float) -> CheckResult:
    """Compare this machine's clock with the database's."""
    if abs(ahead_s) < _SAME_S:
        return CheckResult("clocks", "ok", "this machine's clock and the database's agree")
    direction = "behind" if ahead_s > 0 else "ahead of"
    return CheckResult(
        "clocks",
        "warning",
        f"this machine's clock is {_duration(abs(ahead_s))} {direction} the database's.",
        "Let both follow a time server (NTP). Gateways go by the database's clock meanwhile; certificates and "
        "the times of activity records go by this machine's.",
    )


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return plural(whole, "second") if whole < 120 else f"{whole:,} seconds ({whole / 60:,.0f} minutes)"
