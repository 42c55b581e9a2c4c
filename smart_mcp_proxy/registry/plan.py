"""Plan of a server's entry: what would run, what it needs, and what else there is to choose from."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

import msgspec

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.registry.inputs import Given, InputResolver, Need
from smart_mcp_proxy.registry.listing import Argument, Detail, KeyValue, Package, Transport
from smart_mcp_proxy.servers import describe_known, may_be_passed

_TYPES: Final = {"streamable-http": "http", "sse": "sse"}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ADDRESS: Final = re.compile(r"(?:https?://|\$\{)[^\s]+")


class _Runner(NamedTuple):
    """A way to start packages of one kind.

    Attributes:
        programs: Those that can be named as `runtimeHint`; the first where none is.
        first: Words before the publisher's own, unless they are among those.
        identifier: What a package's name looks like; nothing that begins like an option.
        pinned: Name and version together.
        last: Words between the package and its arguments.
    """

    programs: tuple[str, ...]
    first: tuple[str, ...]
    identifier: re.Pattern[str]
    pinned: str = "{name}@{version}"
    last: tuple[str, ...] = ()

    def words(self, package: Package, options: Sequence[str], variables: Sequence[str]) -> list[str]:
        """The command line up to the package's own arguments."""
        program = package.runtime_hint or self.programs[0]
        name = self.pinned.format(name=package.identifier, version=package.version)
        if not package.version or (self is _RUNNERS["oci"] and _has_tag(package.identifier)):
            name = package.identifier
        first = [word for word in self.first if word not in options]
        passed = [word for name_ in variables for word in ("-e", name_)] if self is _RUNNERS["oci"] else []
        return [program, *first, *options, *passed, name, *self.last]


_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,213}")
_RUNNERS: Final = {
    "npm": _Runner(("npx",), ("-y",), re.compile(r"(?:@[A-Za-z0-9][\w.~-]{0,100}/)?[A-Za-z0-9][\w.~-]{0,213}")),
    "pypi": _Runner(("uvx",), (), _PLAIN),
    "oci": _Runner(
        ("docker", "podman"),
        ("run", "-i", "--rm"),
        re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*(?::\d+/[A-Za-z0-9._/-]+)?(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?"),
        "{name}:{version}",
    ),
    "nuget": _Runner(("dnx",), ("--yes",), _PLAIN, last=("--",)),
}
"""By `registryType`.

Source: https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/server-json/generic-server-json.md"""
_SINGLE_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,254}")
_WORDS_CHARS: Final = 200
_RANGE: Final = re.compile(r"(?:^|\.)[xX*](?:\.|$)")


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
    left_out = _build_options(way, shown)[1] if isinstance(way, Package) else []
    remarks = [*_remarks(way), *left_out] if isinstance(way, Package) else []
    if isinstance(way, Package) and (known := describe_known(way.identifier, (), entry.get("env", ()))):
        remarks.append(known)
    return Plan(offers, chosen.number, entry | quarantine, masked | quarantine, inputs.needs, remarks)


def _offer(number: int, way: Package | Transport) -> Offer:
    if isinstance(way, Package):
        return Offer(
            number,
            "package",
            " ".join(filter(None, (way.registry_type, way.identifier, way.version))),
            _explain_fault(way) or _explain_bad_variable(way.environment_variables),
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
    options, _ = _build_options(package, inputs)
    runner = _RUNNERS[package.registry_type]
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


def _build_options(package: Package, inputs: InputResolver) -> tuple[list[str], list[str]]:
    """Words for the package manager, and a remark about each option that is left out.

    Taken are those that are listed, and those for which the user gives a value: they are warned of in the entry.
    """
    program = package.runtime_hint or _RUNNERS[package.registry_type].programs[0]
    taken, remarks = list[str](), list[str]()
    for argument in package.runtime_arguments or ():
        own = replace(inputs, needs=[])
        words = _build_arguments([argument], own)
        is_given = words and words[0].startswith("-") and any(need.source == "given" for need in own.needs)
        if not words or may_be_passed(program, words) or (is_given and not may_be_passed(program, words[:1])):
            taken += words
            inputs.needs += [need for need in own.needs if need not in inputs.needs]
            continue
        asked = [f"--set {need.name}=VALUE" for need in own.needs if need.source in ("needed", "default")]
        remarks.append(
            f"Left out: {' '.join(words)[:_WORDS_CHARS]!r}, an option that can change what is fetched or what the "
            f"server may reach. If you want it: {' '.join(asked) or 'add it to args of its entry'}."
        )
    return taken, remarks


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
    if not _is_pinned(package):
        remarks.append(f"No version of {package.identifier} is named: each start may run another one.")
    if package.registry_base_url:
        remarks.append(
            f"Its publisher keeps the package at {package.registry_base_url}; it is fetched from the index that your "
            "package manager is set to."
        )
    return remarks


def _explain_fault(package: Package) -> str:
    """Why a package cannot be started as an entry of the server file; empty if it can."""
    runner = _RUNNERS.get(package.registry_type)
    if runner is None:
        known = ", ".join(_RUNNERS)
        return f"packages of type {package.registry_type[:40]!r} are not supported; those that are: {known}"
    if package.transport.type != "stdio":
        return f"the package would listen on an address ({package.transport.type[:40]}); start it by hand, use --url"
    if package.runtime_hint and package.runtime_hint not in runner.programs:
        return f"it wants to be started with {package.runtime_hint[:40]!r}, not with {' or '.join(runner.programs)}"
    if not runner.identifier.fullmatch(package.identifier):
        return f"{package.identifier[:80]!r} is no name of a package of type {package.registry_type}"
    if package.version and (not _SINGLE_VERSION.fullmatch(package.version) or _RANGE.search(package.version)):
        return f"its version {package.version[:40]!r} is no single version"
    if package.file_sha256:
        return "its publisher demands that the file is checked against a hash, which its package manager does not do"
    return ""


def _is_pinned(package: Package) -> bool:
    """Whether each start runs the same version."""
    return bool(package.version) or (package.registry_type == "oci" and _has_tag(package.identifier))


def _has_tag(image: str) -> bool:
    return ":" in image.rpartition("/")[2]
