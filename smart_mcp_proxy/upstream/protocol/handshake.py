"""Negotiation with a server: its era, and its description of itself."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import redact
from smart_mcp_proxy.upstream.protocol.codec import decode_object
from smart_mcp_proxy.upstream.protocol.session import CLIENT_INFO

Post = Callable[[str, Mapping[str, Any]], Awaitable["asyncio.Future[RawResult]"]]
"""Sends one request and returns the future of its result."""

_LABEL_CHARS: Final = 200
"""Characters of the name that a server gives itself, which is shown and never trusted."""
_PROBE_S: Final = 1.5
"""Seconds for `server/discover` alone. Many older servers never answer a method they do not know."""


class Agreement(msgspec.Struct, frozen=True):
    """Outcome of the negotiation."""

    era: Era
    protocol_version: str
    capabilities: Mapping[str, Any]
    server_info: str


def modern_meta(version: str) -> dict[str, Any]:
    """The `_meta` of every request of the modern era.

    No capability is declared: one session serves many agents. What one of them can be asked is declared with its own
    requests, see `merge_envelope`.
    """
    return {PROTOCOL_VERSION_META_KEY: version, CLIENT_INFO_META_KEY: CLIENT_INFO, CLIENT_CAPABILITIES_META_KEY: {}}


def merge_envelope(meta: Mapping[str, Any], envelope: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the envelope of a modern request into `meta`, keeping capabilities declared there."""
    whole = {**meta, **envelope}
    if CLIENT_CAPABILITIES_META_KEY in meta and CLIENT_CAPABILITIES_META_KEY in envelope:
        whole[CLIENT_CAPABILITIES_META_KEY] = meta[CLIENT_CAPABILITIES_META_KEY]
    return whole


def build_list_subscriptions(capabilities: Mapping[str, Any]) -> dict[str, bool]:
    """Subscriptions for a modern server with these capabilities; empty where it announces nothing."""
    declared = {kind: capabilities.get(kind) for kind in ("tools", "prompts", "resources")}
    return {
        f"{kind}ListChanged": True
        for kind, facts in declared.items()
        if isinstance(facts, Mapping) and facts.get("listChanged") is True
    }


def server_label(info: object) -> str:
    """Name and version of a `serverInfo` for display, secrets hidden; empty where there is none."""
    if not isinstance(info, Mapping):
        return ""
    # Hidden first: half of a secret is not found any more.
    return " ".join(redact(str(info[key]))[:_LABEL_CHARS] for key in ("name", "version") if info.get(key))


async def negotiate(
    server: str, post: Post, known: Era | None, capabilities: Mapping[str, Any] = MappingProxyType({})
) -> Agreement:
    """Agrees on an era. The caller limits the time.

    `server/discover` first. If it is not answered soon, `initialize` is sent as well and the first good answer counts,
    so that neither a silent old server nor a slow new one is misjudged.

    Args:
        server: Configured name, for messages.
        post: Sends a request.
        known: The era of the last connection; a server of the handshake era is not probed again.
        capabilities: What is declared in the handshake; none for a session that many clients share.

    Raises:
        UpstreamError: It refuses both, or its versions are unknown to us.
    """
    probe: asyncio.Future[RawResult] | None = None
    if known != "handshake":
        probe = await _probe_server(post, MODERN_PROTOCOL_VERSIONS[-1])
        refusal = probe.exception() if probe.done() and not probe.cancelled() else None
        if isinstance(refusal, UpstreamError) and (version := choose_supported_version(refusal)):
            probe = await _probe_server(post, version)
        if probe.done() and (agreement := _read_discover_answer(probe)):
            return agreement
    greeting = await _send_initialize(post, capabilities)
    if probe is not None and not probe.done():
        await asyncio.wait({probe, greeting}, return_when=asyncio.FIRST_COMPLETED)
        if probe.done() and (agreement := _read_discover_answer(probe)):
            greeting.cancel()
            return agreement
    try:
        return _read_initialize_answer(server, (await greeting).text)
    except UpstreamError as exc:
        if not exc.was_answered or known != "handshake":
            raise
        return await negotiate(server, post, None, capabilities)  # it was updated since the last connection
    finally:
        if probe is not None:
            probe.cancel()


async def greet(server: str, post: Post, capabilities: Mapping[str, Any]) -> Agreement:
    """Agrees with a server of the handshake era; see `negotiate`."""
    return _read_initialize_answer(server, (await (await _send_initialize(post, capabilities))).text)


async def _send_initialize(post: Post, capabilities: Mapping[str, Any]) -> "asyncio.Future[RawResult]":
    """The answer to `initialize`."""
    declared = dict(capabilities)
    params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": declared, "clientInfo": CLIENT_INFO}
    return await post("initialize", params)


async def _probe_server(post: Post, version: str) -> "asyncio.Future[RawResult]":
    """The answer to `server/discover`, if it came within its time."""
    probe = await post("server/discover", {"_meta": modern_meta(version)})
    await asyncio.wait({probe}, timeout=_PROBE_S)
    return probe


def choose_supported_version(refusal: UpstreamError) -> str | None:
    """The version to ask again with: a server that refuses one names those that it supports.

    Source: https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning
    """
    answer = refusal.answer
    if answer is None or answer.code != UNSUPPORTED_PROTOCOL_VERSION or not isinstance(answer.data, Mapping):
        return None
    return _newest_known(answer.data.get("supported"))


def _newest_known(versions: object) -> str | None:
    known = [version for version in MODERN_PROTOCOL_VERSIONS if isinstance(versions, list) and version in versions]
    return known[-1] if known else None


def _read_discover_answer(probe: "asyncio.Future[RawResult]") -> Agreement | None:
    """Read the answer to `server/discover`; None if it is no sign of the modern era."""
    if probe.cancelled() or probe.exception() is not None:
        return None
    result = decode_object(probe.result().text)
    version = _newest_known(result.get("supportedVersions"))
    if version is None:
        return None
    meta = result.get("_meta")
    info = meta.get(SERVER_INFO_META_KEY) if isinstance(meta, Mapping) else None
    return Agreement("modern", version, _capabilities(result), server_label(info))


def _read_initialize_answer(server: str, text: bytes) -> Agreement:
    result = decode_object(text)
    version = result.get("protocolVersion")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise UpstreamError(
            f"Server '{server}' speaks protocol version {version!r}, which is not known here.",
            hint=f"Known: {', '.join((*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS))}.",
        )
    return Agreement("handshake", str(version), _capabilities(result), server_label(result.get("serverInfo")))


def _capabilities(result: Mapping[str, Any]) -> Mapping[str, Any]:
    capabilities = result.get("capabilities")
    return capabilities if isinstance(capabilities, Mapping) else {}
