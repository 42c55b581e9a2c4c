"""The broker as programs read it: its part of the OpenAPI document."""

from importlib.resources import files
from typing import Any

import msgspec

from smart_mcp_proxy.gateway.broker.brokering import BrokerStatus, Connections


def describe_broker(document: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with the broker's paths in it."""
    own = msgspec.json.decode((files("smart_mcp_proxy.web.broker") / "openapi.json").read_bytes())
    _, parts = msgspec.json.schema_components((BrokerStatus, Connections), ref_template="#/components/schemas/{name}")
    components, more = document["components"], own["components"]
    return {
        **document,
        "paths": {**document["paths"], **own["paths"]},
        "components": {
            **components,
            "schemas": {**components["schemas"], **parts, **more["schemas"]},
            "securitySchemes": {**components["securitySchemes"], **more["securitySchemes"]},
        },
    }
