"""Plan of a server's entry: what would run, what it needs, and what else there is to choose from."""

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.registry.inputs import Given, InputResolver, Need
from smart_mcp_proxy.registry.listing import Argument, Detail, KeyValue, Package, Transport
from smart_mcp_proxy.registry.runners import RUNNERS, explain_fault, is_pinned

__all__ = ["Given", "Need", "Offer", "Plan", "plan_entry"]

_TYPES: Final = {"streamable-http": "http", "sse": "sse"}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ADDRESS: Final = re.compile(r"(?:https?://|\$\{)[^\s]+")


class Offer(msgspec.Struct, frozen=True):
    """Way to run or reach a server, as its publisher offers it.

    Attributes:
        number: By which it is chosen.
        kind: A package that runs here, or a remote address.
        what: Kind, name and version of the package, or transport and address.
        problem: Why it cannot be used here; empty if it can.
    """

    number: int
    kind: Literal["package", "remote"]
    what: str
    problem: str


class Plan(msgspec.Struct, frozen=True):
    """The entry that a server would get.

    Attributes:
        offers: All ways that its publisher names.
        chosen: Number of the one that is meant.
        entry: For the server file, in quarantine.
        shown: The same for a screen, the user's own values hidden.
        needs: Values it takes.
        remarks: What else is to be known before it is approved, a sentence each.
    """

    offers: list[Offer]
    chosen: int
    entry: dict[str, Any]
    shown: dict[str, Any]
    needs: list[Need]
    remarks: list[str]


def plan_entry(server: Detail, given: Given, pick: int | None = None) -> Plan:
    """Plan a server's entry.

    Args:
        server: As its registry lists it.
        given: The user's values.
        pick: Number of the offer; the first that can be used if left out, packages first.

    Raises:
        RequestError: Nothing of it can be used, or a value does not fit.
    """
    ways: list[Package | Transport] = [*(server.packages or ()), *(server.remotes or ())]
    offers = [_offer(number, way) for number, way in enumerate(ways, start=1)]
    chosen = _choose_offer(server, offers, pick)
    way = ways[chosen.number - 1]
    short = server.name.rpartition("/")[2]
    inputs, shown = InputResolver(given, short), InputResolver(given, short, is_shown=True)
    entry, masked = (_build_entry(way, each) for each in (inputs, shown))
    inputs.require_known()
    quarantine = {"quarantined": True}
    remarks = _remarks(way) if isinstance(way, Package) else []
    return Plan(offers, chosen.number, entry | quarantine, masked | quarantine, inputs.needs, remarks)


def _offer(number: int, way: Package | Transport) -> Offer:
    if isinstance(way, Package):
        return Offer(
            number,
            "package",
            " ".join(filter(None, (way.registry_type, way.identifier, way.version))),
            explain_fault(way) or _explain_bad_variable(way.environment_variables),
        )
    problem = "" if way.type in _TYPES else f"the transport {way.type[:40]!r} is not known"
    return Offer(number, "remote", f"{way.type} {way.url}", problem or _bad_address(way))


def _choose_offer(server: Detail, offers: Sequence[Offer], pick: int | None) -> Offer:
    if pick is None:
        usable = next((offer for offer in offers if not offer.problem), None)
        if usable is not None:
            return usable
        reasons = "; ".join(f"{offer.what}: {offer.problem}" for offer in offers) or "it names none"
        raise RequestError(
            f"No package and no address of '{server.name}' {server.version} can be used here: {reasons}.",
            hint=f"Its own page may say how to run it: {_find_homepage(server)}. "
            "Then: mcpproxy server add NAME -- COMMAND",
            code="unsupported_server",
        )
    if not 1 <= pick <= len(offers):
        known = "; ".join(f"{offer.number}: {offer.what}" for offer in offers) or "none"
        raise RequestError(f"There is no choice {pick}.", hint=f"There are: {known}.")
    if problem := offers[pick - 1].problem:
        raise RequestError(
            f"{offers[pick - 1].what} cannot be used: {problem}.",
            hint="Use another one of the choices that --dry-run shows.",
            code="unsupported_server",
        )
    return offers[pick - 1]


def _find_homepage(server: Detail) -> str:
    return server.website_url or (server.repository.url if server.repository else "") or "none is named"


def _explain_bad_variable(variables: Sequence[KeyValue] | None) -> str:
    wrong = next((each.name for each in variables or () if not _VARIABLE.fullmatch(each.name)), None)
    return "" if wrong is None else f"{wrong[:40]!r} is no name of a variable"


def _bad_address(remote: Transport) -> str:
    """Why an address cannot be one; what it needs at the start is filled in then."""
    url = InputResolver({}, "").fill_template(remote.url, remote.variables or {})
    return "" if _ADDRESS.fullmatch(url) else f"{remote.url[:80]!r} is no http or https address"


def _build_entry(way: Package | Transport, inputs: InputResolver) -> dict[str, Any]:
    return _of_package(way, inputs) if isinstance(way, Package) else _of_remote(way, inputs)


def _of_package(package: Package, inputs: InputResolver) -> dict[str, Any]:
    env = _resolve_key_values("variable", package.environment_variables, inputs)
    options = _build_arguments(package.runtime_arguments, inputs)
    runner = RUNNERS[package.registry_type]
    command, *args = [*runner.words(package, options, list(env)), *_build_arguments(package.package_arguments, inputs)]
    return {"command": command, "args": args, **({"env": env} if env else {})}


def _of_remote(remote: Transport, inputs: InputResolver) -> dict[str, Any]:
    headers = _resolve_key_values("header", remote.headers, inputs)
    url = inputs.fill_template(remote.url, remote.variables or {})
    return {"url": url, "type": _TYPES[remote.type], **({"headers": headers} if headers else {})}


def _resolve_key_values(
    kind: Literal["variable", "header"], wanted: Sequence[KeyValue] | None, inputs: InputResolver
) -> dict[str, str]:
    texts = {each.name: inputs.text(kind, each.name, each) for each in wanted or ()}
    return {name: text for name, text in texts.items() if text is not None}


def _build_arguments(arguments: Sequence[Argument] | None, inputs: InputResolver) -> list[str]:
    """Words of a command line: `--flag=value` in one, as the schema says, `-f value` in two."""
    words: list[str] = []
    for number, argument in enumerate(arguments or (), start=1):
        is_named = argument.type == "named"
        name = (argument.name if is_named else argument.value_hint) or f"argument {number}"
        for text in inputs.texts("argument", name, argument, is_repeated=argument.is_repeated):
            if not is_named:
                words.append(text)
            elif not text:
                words.append(name)
            else:
                words += [f"{name}={text}"] if name.startswith("--") else [name, text]
    return words


def _remarks(package: Package) -> list[str]:
    remarks = []
    if not is_pinned(package):
        remarks.append(f"No version of {package.identifier} is named: each start may run another one.")
    if package.registry_base_url:
        remarks.append(
            f"Its publisher keeps the package at {package.registry_base_url}; it is fetched from the index that your "
            "package manager is set to."
        )
    return remarks
