"""Base classes of requests on their way to a server, and of what goes on with their answers."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

from mcp_types import CLIENT_CAPABILITIES_META_KEY

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.extensions import Extensions
from smart_mcp_proxy.gateway.calls.inputs import Round
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.observability.tracing import ClientSpan
from smart_mcp_proxy.gateway.results.results import ResultFacts
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.models import CallRequest, ClientInput, ToolRecord
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.upstream import Upstream


class RequestExchange(ABC):
    """A request on its way to a server; a subclass per kind knows what differs.

    Attributes:
        method: Of the protocol.
        server: Configured name; empty where nothing of the name was found.
        name: What is asked for, as the server calls it.
        caller: Who asks, and the way back to it.
        call: The words of a tool call; None for everything else.
        arguments: Those of the agent.
        lists: What servers have listed; None where that does not matter.
        record: What is asked for, as the user approved it; None where its server does not list it, or not yet.
        send: How the server is asked, in the seconds that are left, on the session that all clients share; None for a
            request of the method.
        is_part: Whether a script makes it, whose result is treated as a whole.
        extensions: What is declared in the place of what its caller declares; None for just that. With tasks among it,
            the server may make one of it although the caller knows none: it is waited for.
        span: Of the request to the server; None before that, or where nothing is traced.
    """

    method: str
    server: str
    name: str
    caller: Caller | CallRequest
    call: CallRequest | None = None
    arguments: Mapping[str, Any]
    lists: ListState | None
    record: ToolRecord | None
    send: Callable[[Upstream, float | None], Awaitable[RawResult]] | None = None
    is_part = False
    extensions: Extensions | None = None
    span: ClientSpan | None = None

    @property
    @abstractmethod
    def label(self) -> str:
        """Name of what is asked for in the activity log; free of secrets."""

    @property
    def trace_name(self) -> str:
        """Name of the tool or prompt in a trace; empty where it may hold anything."""
        return self.name

    @abstractmethod
    async def resolve(self) -> None:
        """Find what is asked for, where that takes a wait.

        Raises:
            ProxyError: It is not there, or not for this caller.
        """

    @abstractmethod
    def params(self) -> Mapping[str, Any]:
        """The server's own parameters, the caller's `_meta` among them."""

    @abstractmethod
    async def confirm(self) -> None:
        """Pass if it may still be sent as it was when it came in.

        Raises:
            ProxyError: It changed meanwhile, or is gone.
        """

    def note_completion(self, facts: ResultFacts) -> str:
        """Take note of a complete result; returns its outcome."""
        return "ok"

    @abstractmethod
    async def shape_result(self, raw: RawResult) -> RawResult:
        """The result as its caller gets it."""

    def translate_error(self, error: ProxyError) -> ProxyError:
        """The error in the caller's own terms."""
        return error

    def detail(self) -> dict[str, Any]:
        """More facts for the activity log."""
        return {"method": self.method}

    @abstractmethod
    def with_input(self, given: ClientInput) -> Self:
        """The same request, with these ways to ask its client."""


class Continuation(ABC):
    """Hook of an extension in whose own way servers may answer tool calls.

    Attributes:
        result_type: Of the results that it goes on with.
    """

    result_type: str

    @abstractmethod
    def declare(self, error: ProxyError, exchange: RequestExchange) -> Extensions | None:
        """Extensions with which a refused call is made once more; None where that would not help."""

    @abstractmethod
    async def go_on(
        self, raw: RawResult, exchange: RequestExchange, input_round: Round | None
    ) -> tuple[RawResult, str]:
        """The result as its caller gets it, and the outcome for the activity log.

        Args:
            raw: The server's answer.
            exchange: The call.
            input_round: What was sent; None where the caller cannot be asked.

        Raises:
            ProxyError: The server may not answer so, or nothing came of it.
        """


def declare_extensions(params: Mapping[str, Any], extensions: Extensions) -> Mapping[str, Any]:
    """A modern request's params that declare extensions beside what they declare already."""
    meta: Mapping[str, Any] = params.get("_meta") or {}
    declared = meta.get(CLIENT_CAPABILITIES_META_KEY) or {}
    return {**params, "_meta": {**meta, CLIENT_CAPABILITIES_META_KEY: {**declared, "extensions": dict(extensions)}}}
