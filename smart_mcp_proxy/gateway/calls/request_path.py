"""The one path of requests to servers: gates, slot, connection, request, result, record.

Tool calls, prompts, resources and completions take it alike, whatever brought them in. What differs between them is in
their `RequestExchange`.

The problem: whatever an agent, a script, a page or REST asks of a server has to pass the same approvals, limits and
records, and has to cost about as little as no gateway at all. What is decided must still hold when the request leaves,
though a call may have waited for a slot, a connection, a first list or a person's answer in between.

Refused:

- *A chain of middleware.* Each link is a function more for every call; one list of gates is looked through in a loop.
  A test counts what a call passes (`tests/interaction/test_call_path.py`).
- *A path for each method.* Gates that stand twice come to differ, and the one that is forgotten is the hole.
- *Gates that wait.* A decision that waits is a decision about the past. Gates are plain functions; where a request had
  to wait, those that may have changed are asked again, and from then on nothing waits until it is sent.
- *Looking the tool up where it is needed.* It is looked up once and carried: two look-ups may find two definitions, and
  the one that was approved has to be the one that is called.
- *Knowing extensions here.* What a server makes of a call besides answering it goes on behind one hook,
  `Continuation`; this module knows neither tasks nor what comes after them.
- *Records after the answer.* A gateway that is killed then would have answered calls of which nothing is written.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from smart_mcp_proxy import policy
from smart_mcp_proxy.desktop.present import get_present_client, name_present_client
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.calls.admission import AdmissionControl, CallAdmission
from smart_mcp_proxy.gateway.calls.client_sessions import Clients
from smart_mcp_proxy.gateway.calls.exchange import Continuation, RequestExchange, declare_extensions
from smart_mcp_proxy.gateway.calls.gates import GATES, ArgumentSchemas, CallLimits, GateRules, recheck_before_send
from smart_mcp_proxy.gateway.calls.inputs import InputRounds, Round, build_incomplete_error
from smart_mcp_proxy.gateway.calls.readiness import require_connected, wait_connected
from smart_mcp_proxy.gateway.calls.request_states import Subject
from smart_mcp_proxy.gateway.calls.sign_in_links import SignInLinks
from smart_mcp_proxy.gateway.observability.tracing import Tracing
from smart_mcp_proxy.gateway.results.cleaning import clean_error_async, show_progress
from smart_mcp_proxy.gateway.results.results import INPUT_REQUIRED, ResultFacts, read_facts
from smart_mcp_proxy.models import ClientLine, OnProgress
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import Activity
from smart_mcp_proxy.upstream import Fleet, LostSessionError, Upstream


@dataclass(eq=False, repr=False)
class RequestPath:
    """Carries requests to servers.

    Attributes:
        fleet: The servers' sessions.
        recorder: Gets one activity record per request.
        limits: From the settings.
        clock: Monotonic seconds.
        admission: Limits and breakers; None where there are none.
        inputs: What servers ask of clients; None where none may ask.
        clients: The clients that some servers know each of; None where none does.
        continuation: Goes on with what servers make of calls besides answering them; None where they may not.
        tracing: Makes spans of the requests; None where nothing is traced.
        sign_in_links: Asks people to sign in during a call; None where it does not.
    """

    fleet: Fleet
    recorder: Recorder[Activity]
    limits: CallLimits
    clock: Callable[[], float] = time.monotonic
    _: KW_ONLY
    admission: AdmissionControl | None = None
    inputs: InputRounds | None = None
    clients: Clients | None = None
    continuation: Continuation | None = None
    tracing: Tracing | None = None
    sign_in_links: SignInLinks | None = None

    def __post_init__(self) -> None:
        self._rules = GateRules(self.limits, ArgumentSchemas())
        self._admission = self.admission or AdmissionControl(clock=self.clock)

    def run(self, exchange: RequestExchange) -> Coroutine[Any, Any, RawResult]:
        """The server's result, as the caller gets it.

        A server's question to a modern client is a result. A client of the handshake era is asked, and the request made
        again with what it says.

        Raises:
            RefusedError: A gate is closed.
            RequestError: What the caller said does not fit.
            UpstreamError: The server failed, or asks what it may not; `delivery` says whether the request may have run.
        """
        given = exchange.caller.input
        if given is not None and self.sign_in_links is not None and self.sign_in_links.can_ask(given):
            work = self.sign_in_links.run(exchange, given, self._run)
        else:
            work = self._run(exchange)
        if self.tracing is None or not exchange.caller.is_root:
            return work
        return self.tracing.serve(exchange.method, exchange.trace_name, exchange.caller.meta, work)

    async def _run(self, exchange: RequestExchange) -> RawResult:
        while True:
            started = self.clock()
            outcome, delivery = "internal", ""
            try:
                if exchange.record is None:
                    await exchange.resolve()
                for gate in GATES:
                    gate(exchange, self._rules)
                input_round = await self._begin_round(exchange) if exchange.caller.input is not None else None
                raw = await self._send(exchange, input_round)
                facts = read_facts(raw)
                if facts is not None and facts.resultType == "complete":
                    outcome = exchange.note_completion(facts)
                    return await exchange.shape_result(raw)
                answer, outcome = await self._convert(raw, facts, exchange, input_round)
            except ProxyError as error:
                outcome, delivery = error.error_code, error.delivery
                hook = self.continuation
                if hook is not None and (extensions := hook.declare(error, exchange)) is not None:
                    exchange = copy(exchange)
                    exchange.extensions = extensions
                    continue
                raise await self.clean_for_caller(exchange.translate_error(error), is_part=exchange.is_part) from error
            except asyncio.CancelledError:
                outcome, delivery = "cancelled", "unknown"
                raise
            finally:
                if exchange.span is not None or (self.tracing is not None and outcome != "ok"):
                    self._end_span(exchange, outcome)
                self.note(exchange, outcome, delivery, self.clock() - started)
            if outcome != INPUT_REQUIRED or exchange.caller.input is None or exchange.caller.input.ask is None:
                return answer
            exchange = exchange.with_input(replace(exchange.caller.input, pending=answer.text))

    def _end_span(self, exchange: RequestExchange, outcome: str) -> None:
        if self.tracing is not None:
            self.tracing.note(outcome)
        if exchange.span is not None:
            exchange.span.end(outcome)

    async def _convert(
        self, raw: RawResult, facts: ResultFacts | None, exchange: RequestExchange, input_round: Round | None
    ) -> tuple[RawResult, str]:
        """A question or an extension's answer as its caller gets it, and the outcome for the log.

        Raises:
            ProxyError: It is neither, or the server may not answer so.
        """
        hook, kind = self.continuation, "" if facts is None else facts.resultType
        if hook is not None and kind == hook.result_type and exchange.call is not None:
            return await hook.go_on(raw, exchange, input_round)
        if self.inputs is None:
            raise build_incomplete_error(exchange.server, exchange.method)
        question = await self.inputs.seal_questions(raw, exchange.server, exchange.method, input_round)
        return question, INPUT_REQUIRED

    async def clean_for_caller(self, error: ProxyError, *, is_part: bool = False) -> ProxyError:
        """An error as its caller gets it: what a server says in it is treated like a result.

        Args:
            error: As it was raised.
            is_part: Whether a script made the request; what it answers with is marked as a whole.
        """
        is_fenced = self.limits.is_fenced and not is_part
        return await clean_error_async(error, is_cleaned=self.limits.is_cleaned, is_fenced=is_fenced)

    def note(self, exchange: RequestExchange, outcome: str, delivery: str, seconds: float) -> None:
        """Write the request down. It is on record before its answer leaves."""
        record, caller, call = exchange.record, exchange.caller, exchange.call
        detail = exchange.detail()
        if get_present_client() is not None:
            detail |= name_present_client()
        self.recorder.record(
            Activity(
                kind="call",
                principal=caller.principal,
                subject=exchange.label,
                outcome=outcome,
                duration_ms=seconds * 1000,
                at_s=time.time(),
                detail=detail,
                session=policy.short_digest(caller.session) if caller.session else "",
                server=exchange.server,
                tool=record.key.tool if call is not None and record is not None else "",
                digest=record.digest if record is not None else "",
                delivery=delivery,
                arguments=policy.redact_arguments(exchange.arguments, self.limits.arguments),
                parent=call.parent or "" if call is not None else "",
            )
        )

    async def _begin_round(self, exchange: RequestExchange) -> Round | None:
        """Build the input round of a request whose client can be asked."""
        if self.inputs is None or exchange.caller.input is None:
            return None
        definition = exchange.record.change_hash if exchange.record is not None else ""
        principal, server = exchange.caller.principal, exchange.server
        subject = Subject(principal, server, exchange.method, exchange.name, exchange.arguments, definition)
        return await self.inputs.begin(subject, exchange.caller.input)

    async def _send(self, exchange: RequestExchange, input_round: Round | None) -> RawResult:
        caller, limits, server = exchange.caller, self.limits, exchange.server
        on_progress = caller.on_progress
        if on_progress is not None:
            on_progress = partial(show_progress, on_progress, limits.is_cleaned, limits.is_fenced)
        item = exchange.method if exchange.call is None else exchange.name
        with CallAdmission(self._admission, server, item, caller.principal) as admission:
            left_s: float | None = None
            has_waited = input_round is not None
            upstream = self.fleet.upstreams.get(server)
            if upstream is not None and upstream.is_personal:
                upstream = self.fleet.find(server, caller.principal)
            is_listed = exchange.lists is None or not exchange.lists.is_awaited(server)
            if upstream is None or not upstream.is_ready or not is_listed or admission.is_waiting:
                has_waited = True
                left_s = await admission.turn() if admission.is_waiting else None
                upstream = self.fleet.find(server, caller.principal)  # it may be another one after a wait
                upstream, left_s = await wait_connected(upstream, server, left_s, self.clock, exchange.lists)
            if self.clients is not None and upstream.own is not None and exchange.send is None:
                has_waited = True
                answer = await self._send_as_client(self.clients, upstream, caller.line, left_s, exchange, on_progress)
                if answer is not None:
                    return answer
            if has_waited:  # from here on nothing waits until it is sent
                require_connected(upstream)
                await recheck_before_send(exchange)
            if exchange.send is not None:
                return await exchange.send(upstream, left_s)
            params = exchange.params() if self.tracing is None else self._trace_params(self.tracing, exchange, upstream)
            if input_round is not None:
                params = input_round.params(params, upstream.status.era or "handshake")
            extensions = exchange.extensions or caller.extensions
            if extensions is not None and upstream.status.era == "modern":
                params = declare_extensions(params, extensions)
            return await upstream.request(
                exchange.method, params, timeout_s=left_s, on_progress=on_progress, on_message=caller.on_message
            )

    async def _send_as_client(
        self,
        clients: Clients,
        upstream: Upstream,
        line: ClientLine | None,
        left_s: float | None,
        exchange: RequestExchange,
        on_progress: OnProgress | None,
    ) -> RawResult | None:
        """The result over the client's own session with a server; None where the shared one serves it.

        Where the server has forgotten that session, the request is sent again on a new one, once.
        """
        is_again, began_s = False, self.clock()
        limit_s = upstream.config.limits.call_s if left_s is None else left_s
        while True:
            try:
                async with clients.sender(upstream, line, left_s) as sender:
                    if sender is None:
                        return None
                    if exchange.record is not None:
                        await sender.confirm(exchange.record)
                    await recheck_before_send(exchange)
                    params = (
                        exchange.params()
                        if self.tracing is None
                        else self._trace_params(self.tracing, exchange, upstream)
                    )
                    return await sender.request(exchange.method, params, on_progress=on_progress)
            except LostSessionError as error:
                if is_again or error.delivery != "not_sent":
                    raise
                is_again, left_s = True, max(0.0, limit_s - (self.clock() - began_s))

    def _trace_params(self, tracing: Tracing, exchange: RequestExchange, upstream: Upstream) -> Mapping[str, Any]:
        """The parameters that are sent, with the trace context where this request is traced."""
        params = exchange.params()
        if not tracing.is_recorded():
            return params  # the client's context, where it sent one, is passed on as it is
        exchange.span = tracing.begin_client_span(exchange.method, exchange.trace_name, upstream.config)
        return exchange.span.add_trace_context(params)
