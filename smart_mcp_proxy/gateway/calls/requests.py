"""THE one path of what agents ask of a server besides tool calls: confirm, admit, send, record."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from smart_mcp_proxy import policy
from smart_mcp_proxy.catalog import Snapshot
from smart_mcp_proxy.errors import ProxyError, RpcAnswer, UpstreamError
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.calls.admission import Gates
from smart_mcp_proxy.gateway.calls.calls import CallLimits
from smart_mcp_proxy.gateway.calls.client_sessions import Clients
from smart_mcp_proxy.gateway.calls.inputs import Inputs, Round, incomplete
from smart_mcp_proxy.gateway.calls.request_states import Subject
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.results.cleaning import clean, may_need_cleaning, told_error
from smart_mcp_proxy.gateway.results.progress import shown_progress
from smart_mcp_proxy.gateway.results.results import INPUT_REQUIRED, facts_of, rewritten
from smart_mcp_proxy.gateway.shared.base import Caller
from smart_mcp_proxy.gateway.shared.readiness import connected, require_connected
from smart_mcp_proxy.gateway.visibility.contents import Contents, Target, require_unchanged
from smart_mcp_proxy.gateway.visibility.links import Links
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import Activity
from smart_mcp_proxy.upstream import Fleet, Upstream

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


class Asks:
    """Sends requests to servers.

    Args:
        lists: Say whether what a server lists is still what was approved.
        fleet: The servers' sessions.
        gates: Limits and breakers, the same ones as for tool calls.
        recorder: Gets one activity record per request.
        limits: From the settings: what the activity log keeps of arguments, whether what servers say is cleaned, and
            what they say in errors and of progress marked as theirs.
        clock: Monotonic seconds.
        inputs: What servers ask of clients; None where none may ask.
        clients: The clients that some servers know each of; None where none does.
        links: What results have linked to; None where that leads nowhere.
    """

    def __init__(  # noqa: PLR0913  (as for calls: whatever a request meets is handed in)
        self,
        lists: ListState,
        fleet: Fleet,
        gates: Gates,
        recorder: Recorder[Activity],
        limits: CallLimits,
        clock: Callable[[], float],
        *,
        inputs: Inputs | None = None,
        clients: Clients | None = None,
        links: Links | None = None,
    ) -> None:
        self._lists = lists
        self._fleet = fleet
        self._gates = gates
        self._recorder = recorder
        self._kept = limits.arguments
        self._clock = clock
        self._is_cleaned = limits.is_cleaned
        self._is_fenced = limits.is_fenced
        self._inputs = inputs
        self._clients = clients
        self._links = links

    async def find(self, contents: Contents, uri: str, principal: str) -> Target:
        """Resolve the URI of a resource for a principal, links of its results included.

        It is to be asked for at once: what may be read is looked at for this moment.

        Raises:
            RequestError: It leads nowhere.
            QuarantinedError: It waits for the user.
        """
        return contents.resource(uri) if self._links is None else await self._links.find(contents, uri, principal)

    async def ask(self, ask: Ask) -> RawResult:
        """The server's result as it sent it, cleaned where the settings ask for it.

        A server's question to a modern client is a result; a client of the handshake era is asked, and the request made
        again with what it says.

        Raises:
            RefusedError: What the server lists is not what was approved, or there are too many requests.
            RequestError: The client did not answer, or hands back what does not belong to this request.
            UpstreamError: The server failed, answered with an error, or asks what it may not.
        """
        started = self._clock()
        outcome, delivery = "internal", ""
        snapshot = self._lists.catalog.snapshot  # what the target was found in, a moment ago
        try:
            self._require_approved(ask)
            round = await self._round(ask) if ask.caller.input is not None else None
            raw = await self._send(ask, snapshot, round)
            facts = facts_of(raw)
            is_complete = facts is not None and facts.resultType == "complete"
            result = raw if is_complete else await self._asked(raw, ask, round)
            outcome = "ok" if is_complete else INPUT_REQUIRED
        except ProxyError as error:
            outcome, delivery = error.error_code, error.delivery
            raise await told_error(
                _under_uri(error, ask), is_cleaned=self._is_cleaned, is_fenced=self._is_fenced
            ) from error
        except asyncio.CancelledError:
            outcome, delivery = "cancelled", "unknown"
            raise
        finally:
            self.note(ask, outcome, delivery, self._clock() - started)
        if is_complete:
            return await self._shaped(raw)
        input = ask.caller.input
        if input is None or input.ask is None:
            return result
        return await self.ask(
            replace(ask, caller=structs.replace(ask.caller, input=replace(input, pending=result.text)))
        )

    async def _shaped(self, raw: RawResult) -> RawResult:
        return await rewritten(raw, clean) if self._is_cleaned and may_need_cleaning(raw) else raw

    async def _round(self, ask: Ask) -> Round | None:
        """Build the input round of a request whose client can be asked."""
        if self._inputs is None or ask.caller.input is None:
            return None
        target = ask.target
        definition = target.record.change_hash if target.record is not None else ""
        subject = Subject(ask.caller.principal, target.server, ask.method, target.name, ask.arguments, definition)
        return await self._inputs.begin(subject, ask.caller.input)

    async def _asked(self, raw: RawResult, ask: Ask, round: Round | None) -> RawResult:
        """Convert a server's question into the form that its client is asked in."""
        if self._inputs is None:
            raise incomplete(ask.target.server, ask.method)
        return await self._inputs.passed_on(raw, ask.target.server, ask.method, round)

    def _require_approved(self, ask: Ask) -> None:
        """Passes if the server lists what is asked for as it was approved, as far as it has listed anything."""
        if ask.target.record is not None:
            self._lists.require_approved(ask.target.record)

    async def _send(self, ask: Ask, snapshot: Snapshot, round: Round | None) -> RawResult:
        caller = ask.caller
        params = {**ask.params, "_meta": caller.meta} if caller.meta else ask.params
        server = ask.target.server
        on_progress = shown_progress(caller.on_progress, is_cleaned=self._is_cleaned, is_fenced=self._is_fenced)
        with self._gates.admitted_to(server, caller.principal) as admission:
            granted_s = await admission.turn() if admission.is_waiting else None
            upstream, left_s = await connected(self._fleet, server, granted_s, self._clock, self._lists)
            # What is watched is watched on the session that all share, whoever asks for it.
            line = caller.line if ask.send is None else None
            if line is not None and self._clients is not None and upstream.own is not None:
                async with self._clients.sender(upstream, line, left_s) as sender:
                    if sender is not None:
                        self._require_approved(ask)
                        if ask.target.record is not None:
                            await sender.confirm(ask.target.record)
                        require_unchanged(self._lists.catalog.snapshot, ask.target)
                        return await sender.request(ask.method, params, on_progress=on_progress)
            # The request may have waited; from here on nothing does until it is sent.
            self._require_approved(ask)
            require_connected(upstream)
            if (now := self._lists.catalog.snapshot) is not snapshot:
                require_unchanged(now, ask.target)
            if ask.send is not None:
                return await ask.send(upstream, left_s)
            if round is not None:
                params = round.params(params, upstream.status.era or "handshake")
            return await upstream.request(
                ask.method, params, timeout_s=left_s, on_progress=on_progress, on_message=caller.on_message
            )

    def note(self, ask: Ask, outcome: str, delivery: str, seconds: float) -> None:
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
                detail={"method": ask.method} | ({"via": "link"} if target.is_linked else {}),
                session=policy.short_digest(caller.session) if caller.session else "",
                server=target.server,
                digest=target.record.digest if target.record is not None else "",
                delivery=delivery,
                arguments=policy.kept_arguments(ask.arguments, self._kept),
            )
        )


def _under_uri(error: ProxyError, ask: Ask) -> ProxyError:
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
