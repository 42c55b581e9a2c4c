"""The broker as programs read it: its paths for the OpenAPI document."""

from typing import Any, Final

import msgspec

from smart_mcp_proxy.gateway.broker.brokering import BrokerStatus, Connections
from smart_mcp_proxy.web.common.messages import json_content

_STATUSES: Final = {
    "400": "The message is none, its method is not for the broker, or the server is not configured for proxying.",
    "401": "The caller has no good token, or the server asks for a sign-in: details.code says which.",
    "403": "Policy does not allow it.",
    "404": "No such server or tool is within the caller's reach.",
    "413": "The message is too long.",
    "415": "The body is not declared to be JSON.",
    "421": "The Host is not one of the gateway's names.",
    "429": "Too many requests at once or in too short a time.",
    "500": "The gateway cannot read or write what it keeps.",
    "502": "The server cannot be reached, or its answer cannot be used.",
    "503": "The gateway is shutting down.",
    "504": "The server did not answer in time.",
}
_ON_ANY_REQUEST: Final = ("401", "403", "421", "500")
_FAILURE: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["error", "message", "details", "timestamp"],
    "properties": {
        "error": {"const": "ProxyError"},
        "message": {"type": "string"},
        "details": {
            "type": "object",
            "required": ["mcpName", "proxyEnabled", "code", "delivery"],
            "properties": {
                "mcpName": {"type": "string"},
                "proxyEnabled": {"type": "boolean"},
                "code": {"type": "string"},
                "delivery": {"enum": ["not_sent", "unknown", "executed"]},
            },
        },
        "timestamp": {"type": "string", "format": "date-time"},
    },
}
_REQUEST: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["method"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["integer", "string"], "description": "1 where it is left out; a notification has none."},
        "method": {"type": "string", "minLength": 1, "maxLength": 200},
        "params": {"type": "object"},
    },
}
_REPLY: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["jsonrpc", "id"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["integer", "string"]},
        "result": {"type": "object"},
        "error": {"type": "object"},
    },
}
_NAME: Final[dict[str, Any]] = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}


def describe_broker(document: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with the broker's paths in it."""
    (status, connections), parts = msgspec.json.schema_components(
        (BrokerStatus, Connections), ref_template="#/components/schemas/{name}"
    )
    components = document["components"]
    schemas = {**components["schemas"], **parts, "ProxyError": _FAILURE}
    agent = {"type": "http", "scheme": "bearer", "description": "What /mcp asks for; on loopback often nothing."}
    post = _operation("post_broker", "Pass one MCP request to a server.", _REPLY, tuple(_STATUSES))
    post |= {"parameters": [_NAME], "requestBody": {"required": True, "content": json_content(_REQUEST)}}
    post["responses"]["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    post["responses"]["202"] = {"description": "A notification was taken."}
    one = _operation("get_broker_status", "What the broker knows of a server.", status, (*_ON_ANY_REQUEST, "404"))
    one["parameters"] = [_NAME]
    all_ = _operation("get_connections", "The servers within the caller's reach.", connections, _ON_ANY_REQUEST)
    paths = {
        "/api/mcp/{name}/proxy": {"post": post},
        "/api/mcp/{name}/proxy/status": {"get": one},
        "/api/connections": {"get": all_},
    }
    return {
        **document,
        "paths": {**document["paths"], **paths},
        "components": {
            **components,
            "schemas": schemas,
            "securitySchemes": {**components["securitySchemes"], "agent": agent},
        },
    }


def _operation(name: str, summary: str, answer: dict[str, Any], failures: tuple[str, ...]) -> dict[str, Any]:
    failure = json_content({"$ref": "#/components/schemas/ProxyError"})
    responses: dict[str, Any] = {"200": {"description": "Done.", "content": json_content(answer)}}
    responses |= {status: {"description": _STATUSES[status], "content": failure} for status in failures}
    return {"operationId": name, "summary": summary, "responses": responses, "security": [{"agent": []}, {}]}
