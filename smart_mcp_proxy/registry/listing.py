"""Answers of a registry's API v0.1 as values.

Source: https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/api/openapi.yaml;
https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/server-json/server.schema.json
"""

from typing import Any, Final

import msgspec

from smart_mcp_proxy.errors import UpstreamError

OFFICIAL: Final = "io.modelcontextprotocol.registry/official"
"""Key of `_meta` under which a registry says what has become of a version."""
_FAULT_CHARS: Final = 200
Value = str | int | float | bool
"""Numbers and booleans stand where the schema has text: publishers write them so."""


class Input(msgspec.Struct, frozen=True, rename="camel"):
    """A value that a publisher sets, or asks the user for."""

    description: str | None = None
    is_required: bool = False
    is_secret: bool = False
    format: str = "string"
    value: Value | None = None
    default: Value | None = None
    choices: list[Value] | None = None
    variables: dict[str, "Input"] | None = None


class KeyValue(Input, frozen=True, rename="camel", kw_only=True):
    """A header or a variable of the environment."""

    name: str


class Argument(Input, frozen=True, rename="camel", kw_only=True):
    """A word of a command line, or a flag with its value."""

    type: str
    name: str = ""
    value_hint: str = ""
    is_repeated: bool = False


class Transport(msgspec.Struct, frozen=True, rename="camel"):
    """Transport of a server, with its address where it runs elsewhere."""

    type: str
    url: str = ""
    headers: list[KeyValue] | None = None
    variables: dict[str, Input] | None = None


class Package(msgspec.Struct, frozen=True, rename="camel"):
    """A program that a package manager fetches and starts."""

    registry_type: str
    identifier: str
    transport: Transport
    version: str | None = None
    registry_base_url: str | None = None
    file_sha256: str | None = None
    runtime_hint: str | None = None
    runtime_arguments: list[Argument] | None = None
    package_arguments: list[Argument] | None = None
    environment_variables: list[KeyValue] | None = None


class Repository(msgspec.Struct, frozen=True):
    """Place of the source."""

    url: str = ""


class Detail(msgspec.Struct, frozen=True, rename="camel"):
    """The `server` of an answer."""

    name: str
    version: str
    description: str = ""
    website_url: str | None = None
    repository: Repository | None = None
    packages: list[Package] | None = None
    remotes: list[Transport] | None = None


class VersionStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Status of a version: active, deprecated or deleted, and why."""

    status: str = "active"
    status_message: str | None = None


class Listing(msgspec.Struct, frozen=True):
    """Version of a server with its status in the registry."""

    server: Detail
    standing: VersionStatus = VersionStatus()


class _Answer(msgspec.Struct, frozen=True):
    server: Detail
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class _Answers(msgspec.Struct, frozen=True):
    servers: list[msgspec.Raw]


def read_listing(body: bytes) -> Listing:
    """Read the answer that holds one version.

    Raises:
        UpstreamError: It is of another form.
    """
    try:
        answer = msgspec.json.decode(body, type=_Answer)
        official = (answer.meta or {}).get(OFFICIAL)
        standing = msgspec.convert(official, VersionStatus) if isinstance(official, dict) else VersionStatus()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise _unreadable(exc) from exc
    return Listing(answer.server, standing)


def read_page(body: bytes) -> list[Listing]:
    """Read a list, without the servers that cannot be read: one publisher's slip is not everybody's.

    Raises:
        UpstreamError: It is of another form.
    """
    try:
        answers = msgspec.json.decode(body, type=_Answers)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise _unreadable(exc) from exc
    listings = []
    for raw in answers.servers:
        try:
            listings.append(read_listing(bytes(raw)))
        except UpstreamError:
            continue
    return listings


def _unreadable(fault: Exception) -> UpstreamError:
    return UpstreamError(
        f"The registry's answer is not what API v0.1 says: {str(fault)[:_FAULT_CHARS]}",
        hint="Check MCPPROXY_REGISTRY_URL, and tell whoever runs the registry.",
        code="registry_failed",
        delivery="executed",
    )
