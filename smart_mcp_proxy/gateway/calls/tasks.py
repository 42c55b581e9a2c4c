"""Tasks that servers make of calls: their ids sealed, or waited for where a client knows no tasks.

A client gets an id that only the gateways can read: it holds the server, its own id, the tool and the principal, so
that any gateway with the same key serves the task, and for nobody else.

Source: https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/2026-07-28/tasks.md
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Final

import msgspec

from smart_mcp_proxy.errors import ProxyError, RequestError, UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.extensions import EXTENSIONS, TASKS, Extensions
from smart_mcp_proxy.gateway.calls.admission import AdmissionControl, CallAdmission
from smart_mcp_proxy.gateway.calls.exchange import Continuation, RequestExchange, declare_extensions
from smart_mcp_proxy.gateway.calls.gates import CallLimits, recheck_before_send
from smart_mcp_proxy.gateway.calls.inputs import MAX_ROUNDS, InputRounds, Round, build_incomplete_error
from smart_mcp_proxy.gateway.calls.readiness import require_connected, wait_connected
from smart_mcp_proxy.gateway.calls.request_states import RequestStates
from smart_mcp_proxy.gateway.results.cleaning import clean_message, fence_text, show_progress
from smart_mcp_proxy.gateway.results.results import OFF_LOOP_BYTES, ResultFacts, decode_members, read_facts, read_text
from smart_mcp_proxy.models import OnProgress, ProgressReport
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import spawn
from smart_mcp_proxy.upstream import Fleet
from smart_mcp_proxy.upstream.protocol.session import rpc_error

TASK_RESULT: Final = EXTENSIONS[TASKS].result_type
TASK_DECLARED: Final[Extensions] = {TASKS: EXTENSIONS[TASKS].settings}
ENDS_KEY: Final = "dev.smartmcpproxy/taskEndsWith"
"""In a task's `_meta`: what it ends with at the latest."""
SEAL_S: Final = 30 * 86_400.0
"""Seconds for which an id is taken. A task's own `ttlMs` is its server's business, and may change."""
ID_CHARS: Final = 2_048
"""Limit on a server's own id: it stands in a header, sealed."""
SEALED_CHARS: Final = 8_192
WAIT_S: Final = 3_600.0
"""Seconds that a client that knows no tasks is waited for at most."""
_PAUSE_S: Final = (0.05, 1.0, 30.0)
"""Between two looks at a task: at least, where the server does not say, and at most."""
_FAILURES: Final = 10
"""Looks that fail one after the other, for want of a connection, before a task is given up."""
MISSING_CAPABILITY: Final = -32021
_UNDER_WAY: Final = ("working", "input_required")
_NOT_SAID: Final = ("taskId", "resultType", "result", "error", "inputRequests")
"""Members of a task that are treated each in their own way."""


class TaskRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of a sealed id.

    Attributes:
        task: The server's own id.
        server: Configured name.
        tool: The tool that was called, as its server calls it.
        principal: On whose behalf.
        run: Of a server on stdio, its process; empty for others.
        until_s: Wall time from which on it is no longer taken, seconds.
    """

    task: str
    server: str
    tool: str
    principal: str
    run: str
    until_s: float


_ref = msgspec.json.Decoder(TaskRef, strict=True)


@dataclass(eq=False, repr=False)
class Tasks:
    """Seals and opens tasks.

    Attributes:
        states: Has the key of all gateways.
        process_of: The present process of a server on stdio; empty for others, None where that is not known yet.
        limits: Say whether what servers say is cleaned and fenced.
        wall: Seconds since the epoch; another gateway may have sealed what is opened here.
    """

    states: RequestStates
    process_of: Callable[[str], str | None]
    limits: CallLimits
    _: KW_ONLY
    wall: Callable[[], float] = time.time

    async def seal_task(self, raw: RawResult, server: str, tool: str, principal: str) -> RawResult:
        """A task as its client gets it.

        Raises:
            UpstreamError: The server says that there is a task, and not which.
        """
        members = _members(raw, server)
        run = self.identify_process(server)
        ref = TaskRef(_read_task_id(members, server), server, tool, principal, run, self.wall() + SEAL_S)
        sealed = await self.states.seal_text(msgspec.json.encode(ref))
        if len(sealed) > SEALED_CHARS:
            raise _fault(server, "answered with a task whose id is too long")
        try:
            shown = await self.clean_task_members(members, raw.size_bytes)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as exc:
            raise _fault(server, "answered with a task that cannot be read") from exc
        if run:
            note = "This server runs on stdio: its tasks end with its process, at the latest with the gateway."
            shown["_meta"] = {**shown.get("_meta", {}), ENDS_KEY: note}
        return RawResult(msgspec.json.encode({**shown, "resultType": TASK_RESULT, "taskId": sealed}))

    async def clean_task_members(self, members: Mapping[str, msgspec.Raw], size_bytes: int) -> dict[str, Any]:
        """Clean what a task's members say for themselves; its id and its result are left out.

        Args:
            members: Of the task.
            size_bytes: Of its text; a long one is cleaned in a thread.

        Raises:
            msgspec.MsgspecError: They cannot be read.
        """
        show = partial(_clean_members, members, self.limits)
        return await asyncio.to_thread(show) if size_bytes > OFF_LOOP_BYTES else show()

    def clean_progress(self, on_progress: OnProgress | None) -> OnProgress | None:
        """A listener that passes on what servers say of progress, cleaned for the caller."""
        if on_progress is None:
            return None
        return partial(show_progress, on_progress, self.limits.is_cleaned, self.limits.is_fenced)

    def identify_process(self, server: str) -> str:
        """The process that a new task of a server belongs to; empty for a server that is none."""
        return self.process_of(server) or ""

    def require_process(self, server: str, run: str) -> None:
        """Pass if a task's process is the one that a request is about to be sent to.

        Raises:
            RequestError: Another one has taken its place, whose tasks may have the same ids.
        """
        if self.identify_process(server) != run:
            raise unknown_task(server)

    async def open(self, sealed: str, principal: str) -> TaskRef:
        """Open the id of a task.

        Raises:
            RequestError: It is none of this principal's, or too old, or its server's process has ended.
        """
        text = None if len(sealed) > SEALED_CHARS else await self.states.open_text(sealed)
        try:
            ref = None if text is None else _ref.decode(text)
        except (msgspec.MsgspecError, UnicodeError):
            ref = None
        if ref is None or ref.principal != principal or not self.wall() < ref.until_s:
            raise unknown_task()
        if self.process_of(ref.server) not in (ref.run, None):  # not connected yet: looked at again before it is sent
            raise unknown_task(ref.server)
        return ref


@dataclass(eq=False, repr=False)
class TaskCalls(Continuation):
    """Tool calls that servers make tasks of: handed on to clients that know tasks, else waited for.

    Attributes:
        tasks: Seal and clean them.
        fleet: The servers.
        admission: A task that is waited for counts as a call under way.
        inputs: Have a client answer what a task asks.
        clock: Monotonic seconds.
        pause: Waits so many seconds.
    """

    result_type = TASK_RESULT

    tasks: Tasks
    fleet: Fleet
    admission: AdmissionControl
    inputs: InputRounds
    clock: Callable[[], float]
    _: KW_ONLY
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    def declare(self, error: ProxyError, exchange: RequestExchange) -> Extensions | None:
        """Tasks, where a server makes nothing but a task of a call whose caller knows none."""
        declared = exchange.caller.extensions or {}
        if exchange.call is None or exchange.extensions is not None or TASKS in declared or not demands_task(error):
            return None
        return {**declared, **TASK_DECLARED}

    async def go_on(
        self, raw: RawResult, exchange: RequestExchange, input_round: Round | None
    ) -> tuple[RawResult, str]:
        """The task as its caller gets it, or what came of it.

        Raises:
            UpstreamError: The server may not make one, or it came to nothing.
        """
        caller, server = exchange.caller, exchange.server
        if exchange.extensions is not None:
            result = await _AwaitedTask(self, raw, exchange, input_round).await_result()
            outcome = exchange.note_completion(read_facts(result) or ResultFacts())
            return await exchange.shape_result(result), outcome
        if TASKS not in (caller.extensions or {}):
            raise build_incomplete_error(server, exchange.method)
        return await self.tasks.seal_task(raw, server, exchange.name, caller.principal), TASK_RESULT


@dataclass(eq=False, repr=False)
class _AwaitedTask:
    """A task that a server made of the call of a client that knows none.

    Attributes:
        calls: Have the parts that it takes.
        raw: The task, as the server answered the call with it.
        exchange: The call.
        input_round: What was sent; None where the caller cannot be asked.
    """

    calls: TaskCalls
    raw: RawResult
    exchange: RequestExchange
    input_round: Round | None

    def __post_init__(self) -> None:
        self._server = self.exchange.server
        self._run = self.calls.tasks.identify_process(self._server)
        self._id = _read_task_id(_members(self.raw, self._server), self._server)

    async def await_result(self) -> RawResult:
        """The result that the task comes to, as if there were none.

        Raises:
            UpstreamError: It failed, was cancelled, or asks what its client cannot be asked, or too often.
            UpstreamTimeoutError: It takes longer than `WAIT_S`.
            ProxyError: Its tool may no longer be called, or its process has ended.
        """
        exchange, is_over = self.exchange, False
        try:
            with CallAdmission(
                self.calls.admission, self._server, exchange.name, exchange.caller.principal, goes_on=True
            ) as admission:
                if admission.is_waiting:
                    await admission.turn()
                async with asyncio.timeout(WAIT_S):
                    members = await self._poll_until_over()
            is_over = True
        except ProxyError as error:
            if error.delivery == "not_sent":  # what was refused came after the call
                error.delivery = "unknown"
            raise
        except TimeoutError:
            raise UpstreamTimeoutError(
                f"A task of server '{self._server}' took longer than {WAIT_S:.0f} s.",
                hint="It is cancelled. A client that declares tasks can look at it for as long as it takes.",
                delivery="unknown",
            ) from None
        finally:
            if not is_over:
                spawn(self._cancel(), f"cancel a task of {self._server}")
        return _read_final_result(members, self._server)

    async def _poll_until_over(self) -> Mapping[str, msgspec.Raw]:
        """The last state of the task."""
        on_progress = self.calls.tasks.clean_progress(self.exchange.caller.on_progress)
        raw, looks, rounds, asked = self.raw, 0, 0, set[str]()
        while True:
            members = _members(raw, self._server)
            if read_text(members.get("status")) not in _UNDER_WAY:
                return members
            if open_ := _questions(members, asked):
                asked |= open_.keys()
                rounds += 1
                await self._answer(open_, rounds)
            looks += 1
            if on_progress is not None:
                await on_progress(ProgressReport(looks, None, read_text(members.get("statusMessage"))))
            await self.calls.pause(pause_s(members))
            raw = await self._poll()

    async def _answer(self, questions: Mapping[str, Any], rounds: int) -> None:
        """Have the client answer what the task asks."""
        asking = self.input_round
        if asking is None or asking.input.ask is None:
            raise _cannot_be_asked(self._server)
        if rounds > MAX_ROUNDS:
            raise _fault(self._server, f"asks for input for the {rounds}th time in one task")
        answers = await self.calls.inputs.answers(msgspec.json.encode(questions), self._server, asking)
        await self._ask("tasks/update", inputResponses=answers)

    async def _poll(self) -> RawResult:
        """The task's present state; a connection that is lost meanwhile is waited for."""
        for failures in range(_FAILURES):
            try:
                return await self._ask("tasks/get")
            except UpstreamError as error:
                if error.was_answered or failures == _FAILURES - 1:
                    raise
                await self.calls.pause(_PAUSE_S[1])
        raise AssertionError("the last failure is raised")

    async def _cancel(self) -> None:
        with suppress(ProxyError):
            await self._ask("tasks/cancel")

    async def _ask(self, method: str, **more: Any) -> RawResult:
        """Ask the process that made the task, as long as its tool may be called."""
        calls, server, exchange = self.calls, self._server, self.exchange
        found = calls.fleet.find(server, exchange.caller.principal)
        upstream, _ = await wait_connected(found, server, None, calls.clock, exchange.lists)
        if method != "tasks/cancel":
            await recheck_before_send(exchange)
        require_connected(upstream)
        calls.tasks.require_process(server, self._run)  # from here on nothing waits until it is sent
        return await upstream.request(method, declare_extensions({"taskId": self._id, **more}, TASK_DECLARED))


def pause_s(members: Mapping[str, msgspec.Raw]) -> float:
    """Seconds until a task should be looked at again."""
    least_s, usual_s, most_s = _PAUSE_S
    try:
        said = msgspec.json.decode(members.get("pollIntervalMs", b"null"), type=float | None)
    except msgspec.MsgspecError:
        said = None
    return usual_s if said is None else min(max(said / 1000, least_s), most_s)


def demands_task(error: ProxyError) -> bool:
    """Whether a server refuses a call because its client knows no tasks."""
    answer = error.answer if isinstance(error, UpstreamError) else None
    if answer is None or answer.code != MISSING_CAPABILITY or not isinstance(answer.data, Mapping):
        return False
    required = answer.data.get("requiredCapabilities")
    extensions = required.get("extensions") if isinstance(required, Mapping) else None
    return isinstance(extensions, Mapping) and extensions.keys() == {TASKS}


def unknown_task(stdio_server: str = "") -> RequestError:
    """The refusal of an id; the reason is given for a server on stdio alone."""
    if stdio_server:
        message = f"The task ended with the process of server '{stdio_server}', which runs on stdio."
    else:
        message = "There is no such task, or no longer."
    return RequestError(message, hint="Make the call again to start a new one.", code="task_not_found")


def _members(raw: RawResult, server: str) -> dict[str, msgspec.Raw]:
    try:
        return decode_members(raw.text)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise _fault(server, "answered with a task that cannot be read") from exc


def _read_task_id(members: Mapping[str, msgspec.Raw], server: str) -> str:
    own = read_text(members.get("taskId"))
    if not own or len(own) > ID_CHARS:
        raise _fault(server, f"answered with a task whose id is missing, or longer than {ID_CHARS:,} characters")
    return own


def build_task_failure(members: Mapping[str, msgspec.Raw], server: str) -> UpstreamError:
    """The error that a task came to, as if its call had been answered with it."""
    error = _object(members.get("error"))
    code, message = error.get("code"), error.get("message")
    code = code if isinstance(code, int) else -32603
    return rpc_error(server, "tools/call", code, str(message or "no message"), error.get("data"))


def complete_result(members: Mapping[str, msgspec.Raw], server: str) -> RawResult:
    """The result that a task came to.

    Raises:
        UpstreamError: It is none: a question or another task in its place would pass unjudged.
    """
    result = RawResult(bytes(members.get("result", b"{}")))
    facts = read_facts(result)
    if facts is None or facts.resultType != "complete":
        raise _fault(server, "answered with a task whose result is none")
    return result


def _clean_members(members: Mapping[str, msgspec.Raw], limits: CallLimits) -> dict[str, Any]:
    said = {name: msgspec.json.decode(value) for name, value in members.items() if name not in _NOT_SAID}
    if not isinstance(said.get("_meta"), dict):
        said.pop("_meta", None)
    shown: dict[str, Any] = clean_message(said, is_cleaned=limits.is_cleaned)
    if limits.is_fenced and isinstance(message := shown.get("statusMessage"), str):
        shown["statusMessage"] = fence_text(message)
    return shown


def _read_final_result(members: Mapping[str, msgspec.Raw], server: str) -> RawResult:
    """The result of a task that is over. Raises `UpstreamError` where it came to nothing."""
    status = read_text(members.get("status"))
    if status == "completed":
        return complete_result(members, server)
    if status == "failed":
        raise build_task_failure(members, server)
    if status == "cancelled":
        raise UpstreamError(
            f"Server '{server}' cancelled the task of this call.",
            hint="Some of it may have been done: look before you call again.",
            delivery="unknown",
            code="task_cancelled",
        )
    raise _fault(server, "answered with a task in a state that the protocol does not know")


def _questions(members: Mapping[str, msgspec.Raw], asked: set[str]) -> dict[str, Any]:
    """The questions of a task that nobody has answered yet."""
    return {key: value for key, value in _object(members.get("inputRequests")).items() if key not in asked}


def _object(raw: msgspec.Raw | None) -> dict[str, Any]:
    try:
        return {} if raw is None else msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return {}


def _cannot_be_asked(server: str) -> UpstreamError:
    return UpstreamError(
        f"A task of server '{server}' asks for input, and this caller cannot be asked while it waits.",
        hint="The task is cancelled. A client that declares the extension for tasks can answer, and so can one of the "
        'handshake era that declares elicitation, where the entry has "input_requests": true.',
        delivery="unknown",
        code="task_needs_input",
    )


def _fault(server: str, what: str) -> UpstreamError:
    return UpstreamError(
        f"Server '{server}' {what}.", hint="The server is at fault.", delivery="executed", code="upstream_protocol"
    )
