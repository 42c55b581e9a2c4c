"""The gateway as an agent meets it over MCP: the list it is shown and the calls it makes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from anyio import move_on_after
from mcp.shared.exceptions import MCPError

from smart_mcp_proxy.errors import Delivery, ProxyError, RefusedError, UpstreamError
from smart_mcp_proxy.fastmcp_compat.list_changed import ListChangedHub
from smart_mcp_proxy.fastmcp_compat.server import Inbound, request_error
from smart_mcp_proxy.gateway.results import error_result, fit_to_era
from smart_mcp_proxy.gateway.tools import Caller
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.telemetry import get_logger

__all__ = ["Agent", "Offer"]

UNKNOWN_TOOL = -32602
"""Source: the 2026-07-28 specification, server/tools: an unknown tool is a protocol error."""
NAME_CHARS = 200
"""Of a name that is not listed, no more is shown or compared."""

DRAIN_S = 10.0
"""Source: the project's stop rule: calls in flight get this long when the gateway is told to stop."""
RETRY_AFTER_STOP_S = 5.0
LAST_ANSWERS_S = 1.0
"""What the calls that are then ended get to say so."""

log = get_logger("agent")


class Offer(Protocol):
    """What agents are offered: a list of tools, and the way to call them.

    Attributes:
        instructions: What a model is told at connection.
        list_ttl_ms: How long a client may keep the list.
        is_changing: Whether the list can change while the gateway runs.
    """

    instructions: str
    list_ttl_ms: int
    is_changing: bool

    async def wait_listed(self) -> None:
        """Returns when there is a list to show, if only an empty one."""

    def definitions(self, era: Era) -> Sequence[Mapping[str, Any]]:
        """The tools as one era's `tools/list` shows them."""

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a listed tool; a look-up."""

    def has(self, name: str) -> bool:
        """Whether a tool of this name is listed; a look-up."""

    def demands_headers(self, name: str) -> bool:
        """Whether a listed tool wants some arguments in HTTP headers too, for which the SDK has the rules."""

    def hint(self, name: str) -> str:
        """What to do about a name that is not listed."""

    async def call(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> bytes:
        """The result of a listed tool."""


class Agent:
    """Answers `tools/list` and `tools/call`.

    Args:
        offer: What is listed.
        on_first_answer: Called once, when a client has been answered for the first time.
    """

    def __init__(self, offer: Offer, on_first_answer: Callable[[], None]) -> None:
        self.offer = offer
        self.has = offer.has
        self.input_schema = offer.input_schema
        self.list_changes = ListChangedHub(is_announcing=offer.is_changing)
        self._on_first_answer: Callable[[], None] | None = on_first_answer
        self._in_flight: set[asyncio.Task[Any]] = set()
        self._ended: set[asyncio.Task[Any]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_draining = False

    async def list_tools(self, inbound: Inbound) -> dict[str, Any]:
        """What is offered; the modern era also hears how long the list may be kept, and by whom."""
        await self.offer.wait_listed()
        listing: dict[str, Any] = {"tools": self.offer.definitions(inbound.era)}
        if inbound.era == "handshake":
            return listing
        listing |= {"ttlMs": self.offer.list_ttl_ms, "cacheScope": "private"}
        result: dict[str, Any] = msgspec.json.decode(fit_to_era(msgspec.json.encode(listing), inbound.era))
        return result

    async def call_tool(self, inbound: Inbound) -> dict[str, Any]:
        """The result of a listed tool, errors included.

        Raises:
            MCPError: The tool is not one that is listed, or its server answered with a JSON-RPC error.
        """
        name = inbound.params["name"]
        await self.offer.wait_listed()
        if not self.has(name):
            raise request_error(
                UNKNOWN_TOOL, f"Unknown tool {name[:NAME_CHARS]!r}. {self.offer.hint(name[:NAME_CHARS])}"
            )
        caller = Caller(inbound.principal, inbound.meta, inbound.on_progress, inbound.session)
        raw = await self.answer(name, inbound.params.get("arguments") or {}, caller, inbound.era)
        return _read(name, raw, inbound.era)

    async def answer(self, name: str, arguments: Mapping[str, Any], caller: Caller, era: Era) -> bytes:
        """The result of a listed tool as one era's JSON text; a failure is a result with `isError`.

        Raises:
            MCPError: The offer passes JSON-RPC errors on, and the server answered with one.
        """
        task = asyncio.current_task()
        assert task is not None
        self._in_flight.add(task)
        self._idle.clear()
        try:
            if self._is_draining:
                raise _shutting_down("not_sent")
            return fit_to_era(await self.offer.call(name, arguments, caller), era)
        except MCPError:
            raise
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()  # our own wish, see drain(): its client gets an answer
            return _failed(name, _shutting_down("unknown"), era)
        except ProxyError as error:
            return _failed(name, error, era)
        except RecursionError as exc:
            return _failed(name, _unreadable(name, exc), era)
        except Exception:  # boundary: top of a request's task; the agent gets an answer and no internals
            log.exception("%s failed inside the gateway", name)
            return _failed(name, ProxyError("The gateway failed.", hint="Its log says why.", delivery="unknown"), era)
        finally:
            self._in_flight.discard(task)
            self._ended.discard(task)
            if not self._in_flight:
                self._idle.set()

    async def drain(self, timeout_s: float = DRAIN_S) -> None:
        """Refuses new calls and returns when those under way have ended; after `timeout_s` it ends them."""
        self._is_draining = True
        self.list_changes.close()
        with move_on_after(timeout_s):
            await self._idle.wait()
        if self._in_flight:
            log.warning("%d calls did not end in time and are given up", len(self._in_flight))
        self._ended |= self._in_flight
        for task in self._ended:
            task.cancel()
        with move_on_after(LAST_ANSWERS_S):
            await self._idle.wait()

    def first_answered(self) -> None:
        """Reports the first answer once."""
        if self._on_first_answer is not None:
            report, self._on_first_answer = self._on_first_answer, None
            report()


def _shutting_down(delivery: Delivery) -> RefusedError:
    """The error for calls that come too late, or take too long."""
    return RefusedError(
        "The gateway is shutting down.",
        hint="Call again when it is back.",
        code="shutting_down",
        retry_after_s=RETRY_AFTER_STOP_S,
        delivery=delivery,
    )


def _read(name: str, raw: bytes, era: Era) -> dict[str, Any]:
    """The result as the SDK wants it, or an error in its place: JSON allows more than can be held, deep or large."""
    try:
        result: dict[str, Any] = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        result = msgspec.json.decode(_failed(name, _unreadable(name, exc), era))
    return result


def _unreadable(name: str, exc: Exception) -> UpstreamError:
    """The error for a result that holds something too deep or too large."""
    return UpstreamError(
        f"The result of '{name}' holds a value that cannot be passed on: {exc}.",
        hint="The server is at fault; the call was most likely carried out.",
        delivery="unknown",
    )


def _failed(name: str, error: ProxyError, era: Era) -> bytes:
    """The result that tells of `error`."""
    log.debug("%s failed: %s", name, error)
    return fit_to_era(error_result(error), era)
