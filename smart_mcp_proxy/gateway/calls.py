"""THE one path of an upstream call: resolve, decide, check, send, shape, record. Every gate stands here."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from smart_mcp_proxy import policy
from smart_mcp_proxy.errors import ProxyError, RefusedError, RequestError, UpstreamError
from smart_mcp_proxy.gateway.learning import Learning
from smart_mcp_proxy.gateway.outputs import Outputs, truncate
from smart_mcp_proxy.gateway.recorder import Recorder
from smart_mcp_proxy.gateway.results import RawResult, facts_of
from smart_mcp_proxy.gateway.schemas import ArgumentSchemas
from smart_mcp_proxy.gateway.visible import Visible
from smart_mcp_proxy.models import CallRequest, ToolRecord
from smart_mcp_proxy.telemetry import Activity
from smart_mcp_proxy.upstream import Fleet

__all__ = ["Calls"]


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What the settings say about calls.

    Attributes:
        is_strict: Whether call_tool_read needs `readOnlyHint: true`.
        output_limit_chars: Longer text is cut; 0 leaves everything as it came.
    """

    is_strict: bool = True
    output_limit_chars: int = 0


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
    """

    def __init__(
        self,
        visible: Visible,
        fleet: Fleet,
        outputs: Outputs,
        recorder: Recorder[Activity],
        limits: CallLimits,
        clock: Callable[[], float] = time.monotonic,
        *,
        learning: Learning | None = None,
    ) -> None:
        self._visible = visible
        self._fleet = fleet
        self._outputs = outputs
        self._recorder = recorder
        self._limits = limits
        self._clock = clock
        self._learning = learning
        self._schemas = ArgumentSchemas()

    async def call(self, request: CallRequest, within: Visible | None = None) -> bytes:
        """The tool's result as the upstream sent it (JSON text), cut where the settings ask for it.

        A tool's own failure (`isError`) is a result.

        Args:
            request: What is called.
            within: The tools that this caller may see; None for all.

        Raises:
            ToolNotFoundError: No visible tool has that name.
            RefusedError: Policy, or a definition that is not the one the caller saw.
            RequestError: The arguments do not fit.
            UpstreamError: The server failed; `delivery` says whether the call may have run.
        """
        started = self._clock()
        outcome = "internal"
        subject = request.name[:200]
        try:
            record = await (within or self._visible).require(request.name)
            subject = str(record.key)
            self._admit(record, request)
            raw = RawResult(await self._send(record, request))
            facts = facts_of(raw)
            if facts is None or facts.resultType != "complete":
                raise UpstreamError(
                    f"Server '{record.key.server}' answered the call with something that is not a complete result.",
                    hint="Look at it with: mcpproxy server logs " + record.key.server,
                    delivery="executed",
                )
            outcome = "tool_error" if facts.isError else "ok"
            if self._learning is not None and not facts.isError:
                self._learning.called(request.principal, request.session, record.key)
            limit = self._limits.output_limit_chars
            return truncate(raw, limit, self._outputs, request.principal) if limit else raw
        except ProxyError as error:
            outcome = error.error_code
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self._recorder.record(
                Activity(
                    kind="call",
                    principal=request.principal,
                    subject=subject,
                    outcome=outcome,
                    duration_ms=(self._clock() - started) * 1000,
                    at_s=time.time(),
                    detail=_detail(request),
                )
            )

    def _admit(self, record: ToolRecord, request: CallRequest) -> None:
        """Passes if every gate is open for this call."""
        if request.digest is not None and request.digest != record.digest:
            raise RefusedError(
                f"The definition of '{record.key}' is no longer the one you saw.",
                hint="Read it again with describe_tool, then call with the new digest.",
                code="definition_changed",
                data={"digest": record.digest},
            )
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

    async def _send(self, record: ToolRecord, request: CallRequest) -> bytes:
        params: dict[str, Any] = {"name": record.key.tool, "arguments": request.arguments}
        if request.meta:
            params["_meta"] = request.meta
        upstream = self._fleet.get(record.key.server)
        if upstream is None:  # removed from the configuration between the two lines above
            raise UpstreamError(f"Server '{record.key.server}' is no longer configured.")
        return await upstream.request("tools/call", params, on_progress=request.on_progress)


def _detail(request: CallRequest) -> Mapping[str, Any]:
    detail: dict[str, Any] = {"variant": request.variant}
    if request.intent.reason:
        detail["reason"] = request.intent.reason
    if request.intent.data_sensitivity != "unknown":
        detail["sensitivity"] = request.intent.data_sensitivity
    return detail
