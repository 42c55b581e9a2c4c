"""Holds every answer of REST and the broker against the description that programs read."""

import re
from collections.abc import Mapping
from typing import Any

import httpx2

from smart_mcp_proxy.web.broker.openapi import describe_broker
from smart_mcp_proxy.web.rest import ROUTES
from smart_mcp_proxy.web.rest.openapi import describe

DOCUMENT: Mapping[str, Any] = describe_broker(describe(ROUTES))
_PATHS = [
    (re.compile(re.sub(r"\{\w+\}", ".+", path)), operations)
    # A path that ends in a name takes in what stands behind it too: those come last.
    for path, operations in sorted(DOCUMENT["paths"].items(), key=lambda item: item[0].endswith("}"))
]


async def assert_described(reply: httpx2.Response) -> None:
    """Fails if an operation answers with a status that its description does not have; a hook for a client."""
    for path, operations in _PATHS:
        if path.fullmatch(reply.request.url.path):
            operation = operations.get(reply.request.method.lower())
            described = operation is None or str(reply.status_code) in operation["responses"]
            assert described, f"{reply.request.method} {reply.request.url.path}: {reply.status_code}"
            return
