"""Programs that start a package: which there are, and the words they are started with."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from smart_mcp_proxy.registry.listing import Package


class Runner(NamedTuple):
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
        if not package.version or (self is RUNNERS["oci"] and _has_tag(package.identifier)):
            name = package.identifier
        first = [word for word in self.first if word not in options]
        passed = [word for name_ in variables for word in ("-e", name_)] if self is RUNNERS["oci"] else []
        return [program, *first, *options, *passed, name, *self.last]


_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,213}")
RUNNERS: Final = {
    "npm": Runner(("npx",), ("-y",), re.compile(r"(?:@[A-Za-z0-9][\w.~-]{0,100}/)?[A-Za-z0-9][\w.~-]{0,213}")),
    "pypi": Runner(("uvx",), (), _PLAIN),
    "oci": Runner(
        ("docker", "podman"),
        ("run", "-i", "--rm"),
        re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*(?::\d+/[A-Za-z0-9._/-]+)?(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?"),
        "{name}:{version}",
    ),
    "nuget": Runner(("dnx",), ("--yes",), _PLAIN, last=("--",)),
}
"""By `registryType`.

Source: https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/server-json/generic-server-json.md"""
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,254}")
_RANGE: Final = re.compile(r"(?:^|\.)[xX*](?:\.|$)")


def explain_fault(package: Package) -> str:
    """Why a package cannot be started as an entry of the server file; empty if it can."""
    runner = RUNNERS.get(package.registry_type)
    if runner is None:
        known = ", ".join(RUNNERS)
        return f"packages of type {package.registry_type[:40]!r} are not supported; those that are: {known}"
    if package.transport.type != "stdio":
        return f"the package would listen on an address ({package.transport.type[:40]}); start it by hand, use --url"
    if package.runtime_hint and package.runtime_hint not in runner.programs:
        return f"it wants to be started with {package.runtime_hint[:40]!r}, not with {' or '.join(runner.programs)}"
    if not runner.identifier.fullmatch(package.identifier):
        return f"{package.identifier[:80]!r} is no name of a package of type {package.registry_type}"
    if package.version and (not _VERSION.fullmatch(package.version) or _RANGE.search(package.version)):
        return f"its version {package.version[:40]!r} is no single version"
    if package.file_sha256:
        return "its publisher demands that the file is checked against a hash, which its package manager does not do"
    return ""


def is_pinned(package: Package) -> bool:
    """Whether each start runs the same version."""
    return bool(package.version) or (package.registry_type == "oci" and _has_tag(package.identifier))


def _has_tag(image: str) -> bool:
    return ":" in image.rpartition("/")[2]
