"""Checks of `mcpproxy doctor` on gateways that share a store: limits, servers and clocks."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from smart_mcp_proxy.cli.commands.operate.finding import CheckResult
from smart_mcp_proxy.cli.support.output import plural
from smart_mcp_proxy.policy.limits import LEAST_RATE_PER_S
from smart_mcp_proxy.servers import ServerFile
from smart_mcp_proxy.settings import Settings

_SAME_S: Final = 1.0
_NAMED: Final = 10
"""Servers or gateways that one message names; the rest is counted."""


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
        yield from _servers(gateways, is_shared=bool(store.get("is_shared")))
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


def _servers(gateways: Sequence[Mapping[str, Any]], *, is_shared: bool) -> Iterator[CheckResult]:
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
