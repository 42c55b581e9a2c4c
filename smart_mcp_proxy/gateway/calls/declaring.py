"""Extensions of a request's client, declared to the server that it goes to."""

from collections.abc import Mapping
from typing import Any

from mcp_types import CLIENT_CAPABILITIES_META_KEY

from smart_mcp_proxy.extensions import Extensions


def declare_extensions(params: Mapping[str, Any], extensions: Extensions) -> Mapping[str, Any]:
    """A modern request's params that declare extensions beside what they declare already."""
    meta: Mapping[str, Any] = params.get("_meta") or {}
    declared = meta.get(CLIENT_CAPABILITIES_META_KEY) or {}
    return {**params, "_meta": {**meta, CLIENT_CAPABILITIES_META_KEY: {**declared, "extensions": dict(extensions)}}}
