"""The one path of tool calls: resolve, decide, check, send, shape, record."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from msgspec import structs

from smart_mcp_proxy import policy
from smart_mcp_proxy.errors import ProxyError, RefusedError, RequestError
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.calls.admission import Gates
from smart_mcp_proxy.gateway.calls.client_sessions import Clients
from smart_mcp_proxy.gateway.calls.inputs import Inputs, Round, incomplete
from smart_mcp_proxy.gateway.calls.request_states import Subject
from smart_mcp_proxy.gateway.calls.schemas import ArgumentSchemas
from smart_mcp_proxy.gateway.indexing.learning import Learning
from smart_mcp_proxy.gateway.results.cleaning import clean, fence, may_need_cleaning, told_error
from smart_mcp_proxy.gateway.results.outputs import Outputs, truncate
from smart_mcp_proxy.gateway.results.progress import shown_progress
from smart_mcp_proxy.gateway.results.results import INPUT_REQUIRED, ResultFacts, facts_of, rewritten
from smart_mcp_proxy.gateway.shared.readiness import Lists, connected, connected_now, require_connected
from smart_mcp_proxy.gateway.visibility.links import Links, may_link
from smart_mcp_proxy.gateway.visibility.visibility import NAME_LIMIT_CHARS, Visible
from smart_mcp_proxy.models import CallRequest, ToolRecord
from smart_mcp_proxy.policy import ArgumentsKept
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity
from smart_mcp_proxy.upstream import Fleet

__all__ = ["CallLimits", "Calls"]

REASON_LIMIT_CHARS = 1_000
"""A longer reason is refused, and written down as far as this."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Settings of calls.

    Attributes:
        is_strict: Whether call_tool_read needs `readOnlyHint: true`.
        output_limit_chars: Longer text is cut; 0 leaves everything as it came.
        arguments: What the activity log keeps of a call's arguments.
        is_cleaned: Whether what steers a terminal or hides from the eye is taken out of results.
        is_fenced: Whether text of others is marked as such.
    """

    is_strict: bool = True
    output_limit_chars: int = 0
    arguments: ArgumentsKept = "shape"
    is_cleaned: bool = False
    is_fenced: bool = False

    @classmethod
    def of(cls, settings: Settings, *, is_passing_through: bool) -> "CallLimits":
        """Those that the settings ask for.

        What is passed through is neither changed nor cut: nothing would be listed to read the rest with.
        """
        return cls(
            settings.intent_strict,
            0 if is_passing_through else settings.truncate_output_len or 0,
            settings.activity_args,
            is_cleaned=settings.clean_results and not is_passing_through,
            is_fenced=settings.fence_results and not is_passing_through,
        )


class Calls:
    """Performs upstream calls.

    Args:
        visible: Resolves names.
        fleet: The servers' sessions.
        outputs: Keeps what is cut off.
        recorder: Gets one activity record per call.
        limits: From the settings.
        clock: Monotonic seconds.
        learning: Told of successful calls; None where nothing is learned.
        gates: Limits and breakers; None where there are none.
        lists: What servers list to this process; None where that does not matter.
        inputs: What servers ask of clients; None where none may ask.
        clients: The clients that some servers know each of; None where none does.
        links: Makes the links in results lead here; None where they stay as they are.
    """

    def __init__(  # noqa: PLR0913  (the one path: whatever a call meets is handed in)
        self,
        visible: Visible,
        fleet: Fleet,
        outputs: Outputs,
        recorder: Recorder[Activity],
        limits: CallLimits,
        clock: Callable[[], float] = time.monotonic,
        *,
        learning: Learning | None = None,
        gates: Gates | None = None,
        lists: Lists | None = None,
        inputs: Inputs | None = None,
        clients: Clients | None = None,
        links: Links | None = None,
    ) -> None:
        self._visible = visible
        self._fleet = fleet
        self._outputs = outputs
        self._recorder = recorder
        self._limits = limits
        self._clock = clock
        self._learning = learning
        self._gates = gates or Gates(clock=clock)
        self._lists = lists
        self._inputs = inputs
        self._clients = clients
        self._links = links
        self._schemas = ArgumentSchemas()

    async def call(self, request: CallRequest, within: Visible | None = None) -> RawResult:
        """The tool's result as the upstream sent it, cut where the settings ask for it.

        A tool's own failure (`isError`) is a result, and so is a server's question to a modern client. A client of the
        handshake era is asked, and the call made again with what it says.

        Args:
            request: What is called.
            within: The tools that this caller may see; None for all.

        Raises:
            ToolNotFoundError: No visible tool has that name.
            RefusedError: Policy, or a definition that is not the one the caller saw.
            RequestError: The arguments do not fit.
            UpstreamError: The server failed, or asks what it may not; `delivery` says whether the call may have run.
        """
        visible = within or self._visible
        started = self._clock()
        outcome, delivery = "internal", ""
        record: ToolRecord | None = None
        try:
            record = visible.find(request.name) or await visible.require(request.name)
            self._admit(record, request)
            round = await self._round(record, request) if request.input is not None else None
            raw = await self._send(record, request, visible, round)
            facts = facts_of(raw)
            if facts is not None and facts.resultType == "complete":
                outcome = "tool_error" if facts.isError else "ok"
                self._learn(record, request, facts)
                return await self._shaped(raw, record, request)
            asked = await self._asked(raw, record, round)
            outcome = INPUT_REQUIRED
        except ProxyError as error:
            outcome, delivery = error.error_code, error.delivery
            raise await self.shown(error, request) from error
        except asyncio.CancelledError:
            outcome, delivery = "cancelled", "unknown"
            raise
        finally:
            self._note(request, record, outcome, delivery, self._clock() - started)
        if request.input is None or request.input.ask is None:
            return asked
        return await self.call(structs.replace(request, input=replace(request.input, pending=asked.text)), within)

    def _learn(self, record: ToolRecord, request: CallRequest, facts: ResultFacts) -> None:
        if self._learning is not None and not facts.isError:
            self._learning.called(request.principal, request.session, record.key)

    async def _round(self, record: ToolRecord, request: CallRequest) -> Round | None:
        """Build the input round of a call whose client can be asked."""
        if self._inputs is None or request.input is None:
            return None
        server, tool = record.key
        subject = Subject(request.principal, server, "tools/call", tool, request.arguments, record.change_hash)
        return await self._inputs.begin(subject, request.input)

    async def _asked(self, raw: RawResult, record: ToolRecord, round: Round | None) -> RawResult:
        """Convert a server's question into the form that its client is asked in."""
        if self._inputs is None:
            raise incomplete(record.key.server, "tools/call")
        return await self._inputs.passed_on(raw, record.key.server, "tools/call", round)

    async def _shaped(self, raw: RawResult, record: ToolRecord, request: CallRequest) -> RawResult:
        """The result as the agent gets it: cleaned, then cut, then fenced, each where the settings ask for it."""
        limits = self._limits
        if self._links is not None and may_link(raw):  # first: only the server's own URI leads to its resource
            raw = await self._links.passed_on(raw, record.key.server, request.principal, keeps_uris=request.keeps_uris)
        if limits.is_cleaned and may_need_cleaning(raw):
            raw = await rewritten(raw, clean)
        if limits.output_limit_chars and request.parent is None:  # what a script answers with is cut as a whole
            limit_chars, principal = limits.output_limit_chars, request.principal
            cut = partial(truncate, limit_chars=limit_chars, outputs=self._outputs, principal=principal)
            raw = await rewritten(raw, cut)
        # A script reads values, not text; what it answers with is fenced as a whole.
        return await rewritten(raw, fence) if limits.is_fenced and request.parent is None else raw

    async def shown(self, error: ProxyError, request: CallRequest | None = None) -> ProxyError:
        """An error as its caller gets it: what a server says in it is treated like a result."""
        limits = self._limits
        is_fenced = limits.is_fenced and (request is None or request.parent is None)
        return await told_error(error, is_cleaned=limits.is_cleaned, is_fenced=is_fenced)

    def _note(
        self, request: CallRequest, record: ToolRecord | None, outcome: str, delivery: str, seconds: float
    ) -> None:
        """Writes the call down. It is on record before its answer leaves."""
        server, tool = record.key if record is not None else ("", "")
        self._recorder.record(
            Activity(
                kind="call",
                principal=request.principal,
                subject=str(record.key) if record is not None else policy.masked(request.name, NAME_LIMIT_CHARS),
                outcome=outcome,
                duration_ms=seconds * 1000,
                at_s=time.time(),
                detail=_detail(request),
                session=policy.short_digest(request.session) if request.session else "",
                server=server,
                tool=tool,
                digest=record.digest if record is not None else "",
                delivery=delivery,
                arguments=policy.kept_arguments(request.arguments, self._limits.arguments),
                parent=request.parent or "",
            )
        )

    def _admit(self, record: ToolRecord, request: CallRequest) -> None:
        """Passes if every gate is open for this call."""
        self._require_approved(record)
        if request.digest is not None and request.digest != record.digest:
            raise _definition_changed(record)
        if not (stated := policy.check_intent(request.intent)).allowed:
            raise RequestError(stated.reason, hint=stated.hint)
        decision = policy.decide(
            str(record.key), request.variant, record.annotations, request.intent, is_strict=self._limits.is_strict
        )
        if not decision.allowed:
            raise RefusedError(
                decision.reason,
                hint=decision.hint,
                code="intent_mismatch",
                data={"call_with": f"call_tool_{policy.call_with(record.annotations)}"},
            )
        if request.is_checked:
            self._schemas.check(record, request.arguments)

    async def _send(self, record: ToolRecord, request: CallRequest, visible: Visible, round: Round | None) -> RawResult:
        params: dict[str, Any] = {"name": record.key.tool, "arguments": request.arguments}
        if request.meta:
            params["_meta"] = request.meta
        on_progress = shown_progress(
            request.on_progress, is_cleaned=self._limits.is_cleaned, is_fenced=self._limits.is_fenced
        )
        with self._gates.admitted(request, record) as admission:
            left_s: float | None = None
            upstream = None if admission.is_waiting else connected_now(self._fleet, record.key.server, self._lists)
            has_waited = upstream is None or round is not None
            if upstream is None:
                left_s = await admission.turn() if admission.is_waiting else None
                upstream, left_s = await connected(self._fleet, record.key.server, left_s, self._clock, self._lists)
            if request.line is not None and self._clients is not None and upstream.own is not None:
                has_waited = True
                async with self._clients.sender(upstream, request.line, left_s) as sender:
                    if sender is not None:
                        await sender.confirm(record)
                        await self._confirm(record, visible)
                        return await sender.request("tools/call", params, on_progress=on_progress)
            if has_waited:  # from here on nothing waits until it is sent
                require_connected(upstream)
                await self._confirm(record, visible)
            return await upstream.request(
                "tools/call",
                params if round is None else round.params(params, upstream.status.era or "handshake"),
                timeout_s=left_s,
                on_progress=on_progress,
                on_message=request.on_message,
            )

    def _require_approved(self, record: ToolRecord) -> None:
        """Passes if the server lists the tool as it was approved, as far as it has listed anything."""
        if self._lists is not None:
            self._lists.require_approved(record)

    async def _confirm(self, record: ToolRecord, visible: Visible) -> None:
        """Passes if the tool may still be called as it was when the call came in."""
        self._require_approved(record)
        now = visible.by_id(record.id) or await visible.require(str(record.key))  # which says why it is gone
        if now.change_hash != record.change_hash:
            raise _definition_changed(now)


def _definition_changed(record: ToolRecord) -> RefusedError:
    return RefusedError(
        f"The definition of '{record.key}' is no longer the one you saw.",
        hint="Read it again with describe_tool, then call with the new digest.",
        code="definition_changed",
        data={"digest": record.digest},
    )


def _detail(request: CallRequest) -> Mapping[str, Any]:
    detail: dict[str, Any] = {"variant": request.variant}
    if request.intent.reason:
        detail["reason"] = policy.masked(request.intent.reason, REASON_LIMIT_CHARS)
    if request.intent.data_sensitivity != "unknown":
        detail["sensitivity"] = request.intent.data_sensitivity
    return detail
