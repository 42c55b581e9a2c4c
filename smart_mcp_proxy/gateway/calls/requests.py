"""Prompts, resources and completions: what of the one request path is theirs alone."""

from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

from msgspec import structs

from smart_mcp_proxy import policy
from smart_mcp_proxy.errors import ProxyError, RpcAnswer, UpstreamError
from smart_mcp_proxy.gateway.calls.content_checks import ContentChecks
from smart_mcp_proxy.gateway.calls.exchange import RequestExchange
from smart_mcp_proxy.gateway.calls.gates import CallLimits
from smart_mcp_proxy.gateway.calls.request_path import RequestPath
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.results.cleaning import clean, fence_contents
from smart_mcp_proxy.gateway.results.results import may_need_cleaning, rewrite_result
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.visibility.contents import Contents, require_unchanged
from smart_mcp_proxy.gateway.visibility.items import Target
from smart_mcp_proxy.gateway.visibility.links import Links
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.upstream import Upstream

SUBJECT_CHARS = 500
"""Of a URI in the activity log."""


@dataclass(frozen=True, slots=True)
class ContentRequest:
    """An agent's request for a server's prompt, resource or completion.

    Attributes:
        method: Of the protocol.
        target: What it is about.
        params: For the server, with its own names, without `_meta`.
        arguments: Those of the agent that the activity log keeps as the policy says.
        caller: Who asks.
        send: How the server is asked, in the seconds that are left; None for a request of this method.
        uri: Of a resource, under which the agent asks for it; empty for what has none, or under its own.
    """

    method: str
    target: Target
    params: Mapping[str, Any]
    arguments: Mapping[str, Any]
    caller: Caller
    send: Callable[[Upstream, float | None], Awaitable[RawResult]] | None = None
    uri: str = ""


@dataclass(eq=False, repr=False)
class ContentRequests:
    """Sends requests for prompts, resources and completions.

    Attributes:
        path: Carries them to their servers.
        lists: Say whether what a server lists is still what was approved.
        links: What results have linked to; None where that leads nowhere.
        checks: Compare what servers give with what was approved; None where nothing is compared.
    """

    path: RequestPath
    lists: ListState
    _: KW_ONLY
    links: Links | None = None
    checks: ContentChecks | None = None

    async def find(self, contents: Contents, uri: str, principal: str) -> Target:
        """Resolve the URI of a resource for a principal, links of its results included.

        It is to be asked for at once: what may be read is looked at for this moment.

        Raises:
            RequestError: It leads nowhere.
            QuarantinedError: It waits for the user.
        """
        return contents.resource(uri) if self.links is None else await self.links.find(contents, uri, principal)

    async def ask(self, ask: ContentRequest) -> RawResult:
        """The server's result as it sent it, cleaned and fenced where the settings ask for it.

        A server's question to a modern client is a result.

        Raises:
            RefusedError: What the server lists is not what was approved, or there are too many requests.
            RequestError: The client did not answer, or hands back what does not belong to this request.
            UpstreamError: The server failed, answered with an error, or asks what it may not.
        """
        exchange = _ContentExchange(ask, self.lists, self.checks, self.path.limits)
        return await self.path.run(exchange)

    def note(self, ask: ContentRequest, outcome: str) -> None:
        """Write down a request that needed no server."""
        self.path.note(_ContentExchange(ask, self.lists, None, self.path.limits), outcome, "", 0.0)


class _ContentExchange(RequestExchange):
    """A request for a prompt, a resource or a completion, on its way to its server."""

    def __init__(self, ask: ContentRequest, lists: ListState, checks: ContentChecks | None, limits: CallLimits) -> None:
        self._checks = checks
        self.method, self.caller, self.arguments, self.send = ask.method, ask.caller, ask.arguments, ask.send
        self.server, self.name, self.record = ask.target.server, ask.target.name, ask.target.record
        self.lists = lists
        self._ask = ask
        self._state = lists
        self._limits = limits
        self._snapshot = lists.catalog.snapshot
        """What the target was found in, a moment ago."""

    @property
    def label(self) -> str:
        """Server, method and name."""
        return policy.mask_text(f"{self.server}:{self.method}:{self.name}", SUBJECT_CHARS)

    @property
    def trace_name(self) -> str:
        """The name of a prompt; a URI may hold anything."""
        return self.name if self.method == "prompts/get" else ""

    async def resolve(self) -> None:
        """Nothing is left to find: what the server does not list has no record.

        Raises:
            QuarantinedError: Without one it may not be asked for.
        """
        if self._checks is not None:
            self._checks.require_known(self.method, self._ask.target)

    def params(self) -> Mapping[str, Any]:
        """The server's own parameters."""
        meta = self._ask.caller.meta
        return {**self._ask.params, "_meta": meta} if meta else self._ask.params

    async def confirm(self) -> None:
        """Pass if what is asked for is still what was found."""
        if (now := self._state.catalog.snapshot) is not self._snapshot:
            require_unchanged(now, self._ask.target)

    async def shape_result(self, raw: RawResult) -> RawResult:
        """The result, cleaned and fenced as the settings ask, unless its very bytes were approved.

        Raises:
            QuarantinedError: It is not what was approved.
        """
        if self._checks is not None:
            await self._checks.require_approved(self.method, self._ask.target, raw)
            if self._checks.is_exact(self.method, self._ask.target):
                return raw
        if self._limits.is_cleaned and may_need_cleaning(raw):
            raw = await rewrite_result(raw, clean)
        return await rewrite_result(raw, fence_contents) if self._limits.is_fenced else raw

    def translate_error(self, error: ProxyError) -> ProxyError:
        """The error under the URI that the agent knows."""
        return _under_uri(error, self._ask)

    def detail(self) -> dict[str, Any]:
        """The method, and whether a link led there."""
        return super().detail() | ({"via": "link"} if self._ask.target.is_linked else {})

    def again(self, asked: bytes) -> Self:
        """The same request, with the client to be asked what the server asked."""
        caller = self._ask.caller
        assert caller.input is not None
        caller = structs.replace(caller, input=replace(caller.input, pending=asked))
        return type(self)(replace(self._ask, caller=caller), self._state, self._checks, self._limits)


def _under_uri(error: ProxyError, ask: ContentRequest) -> ProxyError:
    """The error with the agent's URI for the resource, where its data has the server's."""
    answer = error.answer if isinstance(error, UpstreamError) else None
    data = answer.data if answer is not None else None
    if answer is None or not ask.uri or not isinstance(data, dict) or data.get("uri") != ask.target.name:
        return error
    told = copy(error)
    assert isinstance(told, UpstreamError)
    told.answer = RpcAnswer(answer.code, answer.message, {**data, "uri": ask.uri})
    if isinstance(besides := (error.data or {}).get("rpc_data"), dict) and "uri" in besides:
        told.data = {**(error.data or {}), "rpc_data": {**besides, "uri": ask.uri}}
    return told
