"""THE one path of what agents ask of a server besides tool calls: confirm, admit, send, record."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from smart_mcp_proxy import policy
from smart_mcp_proxy.errors import ProxyError, UpstreamError
from smart_mcp_proxy.gateway.contents import Target
from smart_mcp_proxy.gateway.gates import Gates
from smart_mcp_proxy.gateway.recorder import Recorder
from smart_mcp_proxy.gateway.results import RawResult, facts_of
from smart_mcp_proxy.gateway.shelves import Shelves
from smart_mcp_proxy.gateway.tools.base import Caller
from smart_mcp_proxy.policy import ArgumentsKept
from smart_mcp_proxy.telemetry import Activity
from smart_mcp_proxy.upstream import Fleet

__all__ = ["Ask", "Asks"]

SUBJECT_CHARS = 500
"""Of a URI in the activity log."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of an agent for a server's prompt, resource or completion.

    Attributes:
        method: Of the protocol.
        target: What it is about.
        params: For the server, with its own names, without `_meta`.
        arguments: Those of the agent that the activity log keeps as the policy says.
        caller: Who asks.
    """

    method: str
    target: Target
    params: Mapping[str, Any]
    arguments: Mapping[str, Any]
    caller: Caller


class Asks:
    """Sends requests to servers.

    Args:
        shelves: Say whether what a server lists is still what was approved.
        fleet: The servers' sessions.
        gates: Limits and breakers, the same ones as for tool calls.
        recorder: Gets one activity record per request.
        kept: What the activity log keeps of arguments.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        shelves: Shelves,
        fleet: Fleet,
        gates: Gates,
        recorder: Recorder[Activity],
        kept: ArgumentsKept,
        clock: Callable[[], float],
    ) -> None:
        self._shelves = shelves
        self._fleet = fleet
        self._gates = gates
        self._recorder = recorder
        self._kept = kept
        self._clock = clock

    async def ask(self, ask: Ask) -> bytes:
        """The server's result as it sent it (JSON text).

        Raises:
            RefusedError: What the server lists is not what was approved, or there are too many requests.
            UpstreamError: The server failed, or answered with an error.
        """
        started = self._clock()
        outcome, delivery = "internal", ""
        try:
            if ask.target.record is not None:
                await self._shelves.confirm(ask.target.record)
            raw = RawResult(await self._send(ask))
            facts = facts_of(raw)
            if facts is None or facts.resultType != "complete":
                raise UpstreamError(
                    f"Server '{ask.target.server}' answered '{ask.method}' with what is not a complete result.",
                    hint="Look at it with: mcpproxy server logs " + ask.target.server,
                    delivery="executed",
                )
            outcome = "ok"
        except ProxyError as error:
            outcome, delivery = error.error_code, error.delivery
            raise
        except asyncio.CancelledError:
            outcome, delivery = "cancelled", "unknown"
            raise
        finally:
            self._note(ask, outcome, delivery, self._clock() - started)
        return raw

    async def _send(self, ask: Ask) -> bytes:
        caller = ask.caller
        params = {**ask.params, "_meta": caller.meta} if caller.meta else ask.params
        server = ask.target.server
        async with self._gates.admitted_to(server, caller.principal) as left_s:
            upstream = self._fleet.get(server)
            if upstream is None:  # removed from the configuration since it was looked up
                raise UpstreamError(f"Server '{server}' is no longer configured.")
            return await upstream.request(
                ask.method, params, timeout_s=left_s, on_progress=caller.on_progress, on_message=caller.on_message
            )

    def _note(self, ask: Ask, outcome: str, delivery: str, seconds: float) -> None:
        """Writes the request down. It is on record before its answer leaves."""
        target, caller = ask.target, ask.caller
        self._recorder.record(
            Activity(
                kind="call",
                principal=caller.principal,
                subject=policy.masked(f"{target.server}:{ask.method}:{target.name}", SUBJECT_CHARS),
                outcome=outcome,
                duration_ms=seconds * 1000,
                at_s=time.time(),
                detail={"method": ask.method},
                session=policy.short_digest(caller.session) if caller.session else "",
                server=target.server,
                digest=target.record.digest if target.record is not None else "",
                delivery=delivery,
                arguments=policy.kept_arguments(ask.arguments, self._kept),
            )
        )
