"""Tool calls: what of the one request path is theirs alone."""

from collections.abc import Coroutine, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

from msgspec import structs

from smart_mcp_proxy import policy
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.gateway.calls.exchange import RequestExchange
from smart_mcp_proxy.gateway.calls.gates import build_definition_changed_error
from smart_mcp_proxy.gateway.calls.request_path import RequestPath
from smart_mcp_proxy.gateway.indexing.learning import Learning
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.results.cleaning import clean, fence
from smart_mcp_proxy.gateway.results.outputs import Outputs
from smart_mcp_proxy.gateway.results.repair import repair_result
from smart_mcp_proxy.gateway.results.results import ResultFacts, may_link, may_need_cleaning, rewrite_result
from smart_mcp_proxy.gateway.visibility.links import Links
from smart_mcp_proxy.gateway.visibility.visibility import NAME_LIMIT_CHARS, CatalogView
from smart_mcp_proxy.models import CallRequest, ClientInput, ToolRecord
from smart_mcp_proxy.raw_result import RawResult

REASON_LIMIT_CHARS = 1_000
"""A longer reason is refused, and written down as far as this."""


@dataclass(eq=False, repr=False)
class Calls:
    """Performs tool calls.

    Attributes:
        path: Carries them to their servers.
        visible: Resolves names.
        outputs: Keeps what is cut off.
        learning: Told of successful calls; None where nothing is learned.
        lists: What servers list to this process; None where that does not matter.
        links: Makes the links in results lead here; None where they stay as they are.
    """

    path: RequestPath
    visible: CatalogView
    outputs: Outputs
    _: KW_ONLY
    learning: Learning | None = None
    lists: ListState | None = None
    links: Links | None = None

    def call(
        self, request: CallRequest, within: CatalogView | None = None, record: ToolRecord | None = None
    ) -> Coroutine[Any, Any, RawResult]:
        """The tool's result as the upstream sent it, cut where the settings ask for it.

        A tool's own failure (`isError`) is a result, and so is a server's question to a modern client.

        Args:
            request: What is called.
            within: The tools that this caller may see; None for all.
            record: The tool, where the caller has just looked it up there.

        Raises:
            ToolNotFoundError: No visible tool has that name.
            RefusedError: Policy, or a definition that is not the one the caller saw.
            RequestError: The arguments do not fit.
            UpstreamError: The server failed, or asks what it may not; `delivery` says whether the call may have run.
        """
        visible = within or self.visible
        return self.path.run(_ToolCall(self, request, visible, self.lists, record or visible.find(request.name)))

    async def clean_for_caller(self, error: ProxyError) -> ProxyError:
        """An error as its caller gets it: what a server says in it is treated like a result."""
        return await self.path.clean_for_caller(error)

    async def shape_tool_result(self, raw: RawResult, server: str, request: CallRequest) -> RawResult:
        """The result as the agent gets it: repaired, then cleaned, cut and fenced as the settings ask.

        Raises:
            UpstreamError: It is one that the protocol forbids, and cannot be read.
        """
        limits = self.path.limits
        if not raw.is_sound:
            raw = await rewrite_result(raw, partial(repair_result, server=server, tool=request.name))
        if self.links is not None and may_link(raw):  # first: only the server's own URI leads to its resource
            raw = await self.links.relink_and_remember(raw, server, request.principal, keeps_uris=request.keeps_uris)
        if limits.is_cleaned and may_need_cleaning(raw):
            raw = await rewrite_result(raw, clean)
        if limits.output_limit_chars and request.parent is None:  # what a script answers with is cut as a whole
            raw = await self.outputs.cut(raw, limits.output_limit_chars, request.principal)
        # A script reads values, not text; what it answers with is fenced as a whole.
        return await rewrite_result(raw, fence) if limits.is_fenced and request.parent is None else raw


class _ToolCall(RequestExchange):
    """A tool call on its way to its server."""

    method = "tools/call"
    call: CallRequest

    def __init__(
        self,
        calls: Calls,
        request: CallRequest,
        visible: CatalogView,
        lists: ListState | None,
        record: ToolRecord | None,
    ) -> None:
        self.call = self.caller = request
        self.arguments = request.arguments
        self.lists = lists
        self.is_part = request.parent is not None
        self.record = record
        self.server, self.name = ("", "") if record is None else record.key
        self._calls = calls
        self._visible = visible

    @property
    def label(self) -> str:
        """The canonical name, or what the caller wrote where there is none of it."""
        if self.record is None:
            return policy.mask_text(self.call.name, NAME_LIMIT_CHARS)
        return f"{self.server}:{self.name}"

    async def resolve(self) -> None:
        """Find the tool, maybe once its server has listed it.

        Raises:
            ToolNotFoundError: No visible tool has that name.
        """
        self.record = await self._visible.require(self.call.name)
        self.server, self.name = self.record.key

    def params(self) -> Mapping[str, Any]:
        """Parameters of `tools/call`."""
        params: dict[str, Any] = {"name": self.name, "arguments": self.arguments}
        return params | {"_meta": self.call.meta} if self.call.meta else params

    async def confirm(self) -> None:
        """Pass if the tool may still be called as it was when the call came in."""
        record = self.record
        assert record is not None
        # Where it is gone, `require` says why.
        now = self._visible.by_id(record.id) or await self._visible.require(str(record.key))
        if now.change_hash != record.change_hash:
            raise build_definition_changed_error(now)

    def note_completion(self, facts: ResultFacts) -> str:
        """Take note of a result, a tool's own failure among them."""
        if facts.isError:
            return "tool_error"
        if self._calls.learning is not None and self.record is not None:
            self._calls.learning.learn_from_call(self.call.principal, self.call.session, self.record.key)
        return "ok"

    async def shape_result(self, raw: RawResult) -> RawResult:
        """The result as the agent gets it."""
        return await self._calls.shape_tool_result(raw, self.server, self.call)

    def detail(self) -> dict[str, Any]:
        """The call tool that was used, and what the agent said of its intent."""
        intent, detail = self.call.intent, dict[str, Any](variant=self.call.variant)
        if intent.reason:
            detail["reason"] = policy.mask_text(intent.reason, REASON_LIMIT_CHARS)
        if intent.data_sensitivity != "unknown":
            detail["sensitivity"] = intent.data_sensitivity
        return detail

    def with_input(self, given: ClientInput) -> Self:
        """The same call, with this of its client; the tool is looked up anew."""
        request = structs.replace(self.call, input=given)
        return type(self)(self._calls, request, self._visible, self.lists, self._visible.find(request.name))
