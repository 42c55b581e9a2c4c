"""REST: the tools of the catalog, and what was learned about them."""

from typing import Any

from starlette.requests import Request

from smart_mcp_proxy.catalog import Example
from smart_mcp_proxy.errors import (
    RequestError,
    ServerNotFoundError,
    ToolNotFoundError,
    UpstreamAuthError,
    UpstreamError,
)
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.indexing.learning import forget_examples
from smart_mcp_proxy.gateway.retrieval.preflight import NAMES_LIMIT, Checked, Preflight
from smart_mcp_proxy.web.rest.route import Endpoint, Parameter

__all__ = ["ROUTES"]


async def _list(gateway: Gateway, request: Request) -> list[dict[str, Any]]:
    server = request.query_params.get("server")
    if server is not None:
        gateway.visible.require_servers([server])
    records = (record for record in gateway.visible.records() if server in (None, record.key.server))
    return [gateway.retrieval.summarize(record) for record in sorted(records, key=lambda one: one.key)]


async def _show(gateway: Gateway, request: Request) -> dict[str, Any]:
    record = await gateway.visible.require(request.path_params["name"])
    examples = await gateway.catalog.examples_of(record.key)
    return gateway.retrieval.describe(record) | {"examples": [_example(example) for example in examples]}


async def _check(gateway: Gateway, request: Request) -> list[Checked]:
    names = request.query_params.getlist("tool")
    if not 1 <= len(names) <= NAMES_LIMIT:
        raise RequestError(f"{len(names)} tools are named.", hint=f"Name 1 to {NAMES_LIMIT}: ?tool=NAME&tool=NAME.")
    return await Preflight(gateway.visible, gateway.calls.shown).check(names)


async def _forget_examples(gateway: Gateway, request: Request) -> dict[str, int]:
    query = request.query_params
    count = await forget_examples(gateway.catalog, query.get("tool"), query.get("question"))
    await gateway.index_sync.follow()
    return {"forgotten": count}


def _example(example: Example) -> dict[str, Any]:
    return {
        "question": example.question,
        "uses": example.uses,
        "last_used_s": example.last_used_s,
        "is_confirmed": example.is_confirmed,
    }


ROUTES = (
    Endpoint(
        "GET",
        "/check",
        _check,
        "Whether tools can be called now, as they were approved; none is called.",
        list[Checked],
        query={
            "tool": Parameter(
                "Canonical or listed name, with @ and a digest behind it where it is held to that definition; "
                f"may be repeated, at most {NAMES_LIMIT} times.",
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": NAMES_LIMIT},
                is_required=True,
            )
        },
    ),
    Endpoint(
        "GET",
        "/tools",
        _list,
        "All visible tools.",
        list[dict[str, Any]],
        query={"server": "Only of this server."},
        failures=(ServerNotFoundError,),
    ),
    Endpoint(
        "GET",
        "/tools/{name:path}",
        _show,
        "One tool's whole definition, and what was learned about it.",
        failures=(ToolNotFoundError, UpstreamError, UpstreamAuthError),
    ),
    Endpoint(
        "DELETE",
        "/examples",
        _forget_examples,
        "Forgets what was learned from use, all of it if nothing is named.",
        dict[str, int],
        query={
            "tool": "Only about this tool.",
            "question": Parameter("Only this question.", {"type": "string", "pattern": r"[A-Za-z0-9]"}),
        },
        failures=(ToolNotFoundError,),
    ),
)
