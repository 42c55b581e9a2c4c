"""Requests about tasks: what of the one request path is theirs alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from smart_mcp_proxy.errors import ProxyError, UpstreamError
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.calls.exchange import RequestExchange
from smart_mcp_proxy.gateway.calls.inputs import InputRounds
from smart_mcp_proxy.gateway.calls.request_path import RequestPath
from smart_mcp_proxy.gateway.calls.tasks import TaskRef, Tasks, build_task_failure, complete_result, unknown_task
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.results.results import decode_members, fit_to_era
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.models import CallRequest, ClientInput, ToolRecord
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.upstream import Upstream

INVALID_PARAMS = -32602
TOLD = "notifications/tasks"
_DONE = RawResult(b"{}")


class TaskRequest(msgspec.Struct, frozen=True):
    """A client's request about a task of its own.

    Attributes:
        method: `tasks/get`, `tasks/update` or `tasks/cancel`.
        sealed: The id as the client has it.
        ref: What it stands for.
        record: The tool that the task is of, as its caller sees it.
        more: Further params.
        caller: Who asks.
        keeps_uris: Whether it knows the server's resources by the server's own URIs.
        told: State of the task that the server told by itself: it is shaped in the place of an answer; None to ask.
    """

    method: str
    sealed: str
    ref: TaskRef
    record: ToolRecord
    more: Mapping[str, Any]
    caller: Caller
    keeps_uris: bool = False
    told: RawResult | None = None


@dataclass(eq=False, repr=False)
class TaskRequests:
    """Sends requests about tasks.

    Attributes:
        path: Carries them to their servers.
        calls: Shapes the results of tools.
        tasks: Show what servers say of tasks.
        inputs: Judge what servers ask.
        lists: Say whether a tool is still what was approved.
    """

    path: RequestPath
    calls: Calls
    tasks: Tasks
    inputs: InputRounds
    lists: ListState

    async def failure(self, members: Mapping[str, msgspec.Raw], server: str) -> dict[str, Any]:
        """The JSON-RPC error that a task came to, treated like that of any call."""
        shown = await self.path.clean_for_caller(build_task_failure(members, server))
        answer = shown.answer if isinstance(shown, UpstreamError) else None
        assert answer is not None  # it was made of one
        more = {} if answer.data is None else {"data": answer.data}
        return {"code": answer.code, "message": answer.message, **more}

    async def ask(self, ask: TaskRequest) -> RawResult:
        """The server's result as the client gets it.

        Raises:
            RequestError: The server does not know the task, or no longer.
            ProxyError: Otherwise as for any request.
        """
        return await self.path.run(_TaskExchange(ask, self))


class _TaskExchange(RequestExchange):
    """A request about a task, on its way to its server."""

    def __init__(self, ask: TaskRequest, requests: TaskRequests) -> None:
        self.method, self.caller, self.record, self.lists = ask.method, ask.caller, ask.record, requests.lists
        self.server, self.name = ask.record.key
        self.arguments = {}
        self._ask = ask
        self._requests = requests
        if ask.told is not None:
            self.method, self.send = TOLD, self._was_told

    async def _was_told(self, upstream: Upstream, left_s: float | None) -> RawResult:
        assert self._ask.told is not None  # else nobody is asked this way
        return self._ask.told

    @property
    def label(self) -> str:
        """Server, method and tool; whoever reads an id in a log could not use it."""
        return f"{self.server}:{self.method}:{self.name}"

    async def resolve(self) -> None:
        """The tool is known."""

    def params(self) -> Mapping[str, Any]:
        """The server's own id in the place of the client's."""
        params = {**self._ask.more, "taskId": self._ask.ref.task}
        return params | {"_meta": self._ask.caller.meta} if self._ask.caller.meta else params

    async def confirm(self) -> None:
        """Pass if the server's process is still that of the task; what was approved is looked at by the gates.

        Raises:
            RequestError: It is not.
        """
        self._requests.tasks.require_process(self.server, self._ask.ref.run)

    async def shape_result(self, raw: RawResult) -> RawResult:
        """The task under the client's id; what came of it like the result of a call."""
        if self.method not in ("tasks/get", TOLD):
            return _DONE
        try:
            return await self._shape_task(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as exc:
            raise UpstreamError(
                f"What server '{self.server}' says of a task cannot be passed on.",
                hint="The server is at fault.",
                delivery="executed",
                code="upstream_protocol",
            ) from exc

    async def _shape_task(self, raw: RawResult) -> RawResult:
        ask, requests = self._ask, self._requests
        members = decode_members(raw.text)
        said = await requests.tasks.clean_task_members(members, raw.size_bytes)
        shown: dict[str, Any] = {**said, "resultType": "complete", "taskId": ask.sealed}
        if "result" in members:
            request = CallRequest(
                str(ask.record.key), {}, None, principal=ask.caller.principal, keeps_uris=ask.keeps_uris
            )
            result = await requests.calls.shape_tool_result(complete_result(members, self.server), self.server, request)
            shown["result"] = msgspec.Raw(fit_to_era(result, "modern").text)
        if "error" in members:
            shown["error"] = await requests.failure(members, self.server)
        if "inputRequests" in members:
            declared = ask.caller.input.capabilities if ask.caller.input is not None else {}
            shown["inputRequests"] = await requests.inputs.prepare_task_questions(
                bytes(members["inputRequests"]), self.server, declared
            )
        return RawResult(msgspec.json.encode(shown))

    def translate_error(self, error: ProxyError) -> ProxyError:
        """The error, without the server's own id where it does not know the task."""
        answer = error.answer if isinstance(error, UpstreamError) else None
        if answer is None or answer.code != INVALID_PARAMS:
            return error
        if self.method == "tasks/update" and self._ask.ref.task not in answer.message:
            return error  # it is about the answers, or says no more than we would
        return unknown_task(self.server if self._ask.ref.run else "")

    def with_input(self, given: ClientInput) -> Self:
        """The same request; nobody is asked while it is made."""
        return self
