"""`retrieve_tools`: the one search in front of all servers."""

from typing import Annotated, Any, Literal

from pydantic import Field

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.results.results import build_structured_result
from smart_mcp_proxy.gateway.retrieval.kinds import ITEM_KINDS
from smart_mcp_proxy.gateway.retrieval.retrieval import MORE_QUERIES_LIMIT, TOP_K_LIMIT, Question, Retrieval
from smart_mcp_proxy.gateway.shared.agent_tools import AgentTool, Arguments, Caller
from smart_mcp_proxy.models import ItemKind
from smart_mcp_proxy.raw_result import RawResult


class RetrieveArguments(Arguments):
    """Arguments of `retrieve_tools`."""

    query: Annotated[str, Field(description="What the tool should do, in words, or a tool's exact name")]
    limit: Annotated[int, Field(ge=1, le=TOP_K_LIMIT, description="Most tools to return")] = 5
    detail: Annotated[Literal["compact", "full"], Field(description="full: whole schemas")] = "compact"
    servers: Annotated[list[str], Field(description="Only these servers", default_factory=list)]
    read_only: Annotated[bool, Field(description="Only tools marked read-only")] = False
    more_queries: Annotated[
        list[str],
        Field(
            max_length=MORE_QUERIES_LIMIT,
            description="The other steps, one each",
            default_factory=list,  # a default would be copied deep for every call
        ),
    ]
    types: Annotated[list[ItemKind], Field(description="Find these, in found[]", default_factory=list)]
    toolset: Annotated[str, Field(description="Handle of a toolset to extend with what is found")] = ""


class RetrieveTools(AgentTool[RetrieveArguments]):
    """The `retrieve_tools` tool: a search for the tools that a task needs."""

    name = "retrieve_tools"
    description = """\
    Find tools across all connected servers. Call this first: only these few tools are listed, many more exist.
    Split the task into steps: the first as query ("find the invoice"), each other one in more_queries.
    Each result says how to call it: use the tool named in call_with, with its name and arguments.
    An empty list means nothing fits; not_covered names servers that could not be searched.
    """
    annotations = {"readOnlyHint": True, "openWorldHint": False}
    arguments = RetrieveArguments
    output_schema = {
        "type": "object",
        "properties": {
            "waiting": {"type": "array"},  # its rows say what they are; the whole list has a budget
            "tools": {"type": "array", "items": {"type": "object"}},
            "near_misses": {"type": "array", "items": {"type": "object"}},
            "not_covered": {"type": "array", "items": {"type": "object"}},
            "hint": {"type": "string"},
        },
    }

    def __init__(self, retrieval: Retrieval, top_k: int, *, has_toolsets: bool) -> None:
        self._retrieval = retrieval
        self._top_k = top_k
        self._has_toolsets = has_toolsets

    def definition(self) -> dict[str, Any]:
        """The tool as listed: with the configured default limit, and `toolset` only where toolsets are made."""
        definition = super().definition()
        properties = definition["inputSchema"]["properties"]
        properties["limit"]["default"] = self._top_k
        # Understood, and named in a hint where there are skills: the list stays as it is where there are none.
        properties["types"]["items"]["enum"] = [kind for kind in ITEM_KINDS if kind != "skill"]
        if not self._has_toolsets:
            del properties["toolset"]
        return definition

    async def run(self, arguments: RetrieveArguments, caller: Caller) -> RawResult:
        """Searches."""
        if arguments.toolset and not self._has_toolsets:
            raise RequestError(
                "This gateway makes no toolsets.",
                hint="Leave toolset out and call what is found with the tool named in call_with. "
                "Its operator has toolsets made with MCPPROXY_ROUTING_TYPE=DYNAMIC.",
                code="toolset_not_found",
            )
        question = Question(
            query=arguments.query,
            limit=arguments.limit if "limit" in arguments.model_fields_set else self._top_k,
            detail=arguments.detail,
            servers=tuple(arguments.servers),
            read_only=arguments.read_only,
            more_queries=tuple(arguments.more_queries),
            principal=caller.principal,
            session=caller.session,
            tool_list=caller.tool_list,
            toolset=arguments.toolset or None,
            types=tuple(arguments.types),
        )
        return build_structured_result(await self._retrieval.retrieve(question))
