"""OpenAPI 3.1 of the REST interface, made from the one table of routes, and pages for browsers.

The pages hold everything they need: no script, no style sheet and no font of another host, and nothing that the caller
sent.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from smart_mcp_proxy import __version__
from smart_mcp_proxy.gateway.results.results import SERVER_NAME
from smart_mcp_proxy.web.common.messages import json_content, json_response
from smart_mcp_proxy.web.rest.route import PREFIX, Endpoint, Parameter

OPENAPI_PATH = "/openapi.json"
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_NOT_WORD = re.compile(r"\W+")
_NAME = Parameter("", {"type": "string", "minLength": 1}, is_required=True)
_STATUSES: Final = {
    400: "The request cannot be carried out as it stands.",
    401: "The operator's token is missing or wrong, or a server asks for a sign-in: error.code says which.",
    403: "Policy does not allow it, or the page that asks is not let in.",
    404: "There is nothing of that name.",
    409: "What the request was based on is not so any more, or the name is taken.",
    413: "The body is too long.",
    415: "The body is not declared to be JSON.",
    421: "The Host is not one of the gateway's names.",
    429: "Too many calls at once or in too short a time.",
    500: "The gateway cannot read or write what it keeps.",
    502: "The server cannot be reached, or its answer cannot be used.",
    503: "The gateway is shutting down, or cannot reach what it keeps: Retry-After says when to ask again.",
    504: "The server did not answer in time.",
}
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "hint", "delivery"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "hint": {"type": "string"},
                "delivery": {"enum": ["not_sent", "unknown", "executed"]},
                "retry_after_s": {"type": "number"},
                "data": {"type": "object"},
            },
        }
    },
}
START_PATH: Final = "/"
DOCS_PATH: Final = "/docs"
_PLACES: Final = {
    "mcp": ("/mcp", "MCP over streamable HTTP: the address for your client"),
    "sse": ("/sse", "MCP over the older transport with server-sent events"),
    "page": ("/ui", "the operator's page, opened by: mcpproxy ui"),
    "rest": (PREFIX, "the REST interface, with the operator's token"),
    "docs": (DOCS_PATH, "its description for people"),
    "openapi": (OPENAPI_PATH, "its description for programs"),
    "health": ("/healthz", "whether this process lives"),
    "ready": ("/readyz", "whether its index serves"),
}
_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    types = [kind for endpoint in endpoints for kind in (endpoint.answer, endpoint.body) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema_of = {repr(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = PREFIX + _PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "smart-mcp-proxy", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR},
            "securitySchemes": {"operator": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    words = _NOT_WORD.sub("_", _PARAMETER.sub(r"\1", endpoint.path)).strip("_")
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.method.lower()}_{words}",
        "summary": endpoint.summary,
        "parameters": [
            *(_parameter("path", name, _NAME) for name in _PARAMETER.findall(endpoint.path)),
            *(_parameter("query", name, each) for name, each in endpoint.query.items()),
        ],
        "responses": {
            "200": {
                "description": "Done.",
                "content": {endpoint.media_type: {"schema": schema_of[repr(endpoint.answer)]}},
            },
            **{str(status): _failure(status) for status in endpoint.failure_statuses},
        },
        "security": [{"operator": []}] if not endpoint.operation.is_open else [],
    }
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": json_content(schema_of[repr(endpoint.body)])}
    return operation


def _failure(status: int) -> dict[str, Any]:
    return {"description": _STATUSES[status], "content": json_content({"$ref": "#/components/schemas/Error"})}


def _parameter(place: str, name: str, each: str | Parameter) -> dict[str, Any]:
    found = each if isinstance(each, Parameter) else Parameter(each, {"type": "string"})
    described = {"description": found.meaning} if found.meaning else {}
    return {"name": name, "in": place, "required": found.is_required, "schema": dict(found.schema), **described}


async def answer_start(request: Request) -> Response:
    """Index of the endpoints: a page for browsers, JSON for others."""
    if "text/html" not in request.headers.get("accept", ""):
        return json_response({"name": SERVER_NAME} | {name: path for name, (path, _) in _PLACES.items()})
    places = tuple(_PLACES.values())
    return docs_response(await to_thread.run_sync(partial(_render, "start.html", title=SERVER_NAME, places=places)))


def docs_response(page: str) -> Response:
    """A page as it is sent: stored nowhere, and unable to load or send anything."""
    return HTMLResponse(page, headers=_HEADERS)


def docs_page(document: Mapping[str, Any]) -> str:
    """An OpenAPI document as one page of HTML."""
    return _render("docs.html", title=f"{SERVER_NAME}: REST", document=document, openapi=OPENAPI_PATH)


def _render(template: str, **values: Any) -> str:
    """The text of a page; everything that is put into one is escaped."""
    # Here and not above: only browsers ask for pages.
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("smart_mcp_proxy.web.rest"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"compact": json.dumps, "indented": partial(json.dumps, indent=2, ensure_ascii=False)}
    return environment.get_template(template).render(**values)
