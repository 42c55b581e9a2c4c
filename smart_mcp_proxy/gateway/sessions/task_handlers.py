"""Tasks as agents meet them, in the modern era: looked at, answered, cancelled, followed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
from mcp.shared.exceptions import MCPError

from smart_mcp_proxy.errors import ProxyError, RequestError
from smart_mcp_proxy.extensions import EXTENSIONS, TASKS, Extensions, read_extension_settings
from smart_mcp_proxy.fastmcp_compat.handlers import Inbound
from smart_mcp_proxy.fastmcp_compat.message_guard import read_writable
from smart_mcp_proxy.fastmcp_compat.methods import request_error
from smart_mcp_proxy.fastmcp_compat.paths import get_request_path, principal
from smart_mcp_proxy.gateway.calls.task_requests import TaskRequest, TaskRequests
from smart_mcp_proxy.gateway.calls.tasks import MISSING_CAPABILITY, TASK_DECLARED, pause_s, unknown_task
from smart_mcp_proxy.gateway.results.results import decode_members, fit_to_era
from smart_mcp_proxy.gateway.sessions.content_handlers import METHOD_NOT_FOUND, build_rpc_error, decode_answer
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.visibility.views import Views
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import Era, Principal
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream import Fleet

FOLLOWED: Final = 64
"""Tasks of one stream; each is looked at as often as its server says."""
FOLLOW_S: Final = 1.0
"""Between two looks at least: each is a request on record, and nobody waits for one of them."""
TOLD_S: Final = 0.1
"""Between two states at least: each that a server tells by itself is on record, too."""
FOLLOW_FAILED_S: Final = 60.0
"""Between two looks that fail, at most."""
_METHODS: Final = EXTENSIONS[TASKS].methods
_TOOLSET: Final = "t/"
_CONNECTION_PREFIX: Final = "io.modelcontextprotocol/"
_OVER: Final = frozenset({"completed", "failed", "cancelled"})

log = get_logger("tasks")


@dataclass(eq=False, repr=False)
class TaskHandlers:
    """Answers what agents ask of tasks.

    Attributes:
        views: What may be seen.
        fleet: The servers.
        requests: The one path to a server.
        passed: The one server that is passed through; None where there are many.
    """

    views: Views
    fleet: Fleet
    requests: TaskRequests
    passed: str | None

    @property
    def methods(self) -> frozenset[str]:
        """Methods handled here."""
        return frozenset(_METHODS)

    def capabilities(self, era: Era) -> dict[str, Any]:
        """The extension, where a server that is seen at the path of the present request makes tasks."""
        if era == "handshake":
            return {}
        view = self._view(get_request_path(), principal())
        seen = () if view is None else (self.fleet.upstreams.get(name) for name in view.servers)
        makes = any(each is not None and read_extension_settings(each.capabilities, TASKS) is not None for each in seen)
        return {"extensions": {**TASK_DECLARED}} if makes else {}

    async def answer(self, method: str, inbound: Inbound) -> dict[str, Any]:
        """The result of one request.

        Raises:
            MCPError: There is none: as the server said it, or as the gateway says it.
        """
        if inbound.era != "modern":
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        require_declared(inbound.extensions)
        who, sealed = inbound.principal, inbound.params["taskId"]
        caller = Caller(who.id, inbound.meta, None, input=inbound.input, extensions=inbound.extensions, is_root=True)
        more = {name: inbound.params[name] for name in _METHODS[method] if name != "taskId"}
        try:
            raw = await self.requests.ask(await self._resolve_task(inbound.path, who, sealed, caller, method, more))
        except ProxyError as error:
            raise build_rpc_error(method, error, "modern") from error
        return decode_answer(method, fit_to_era(raw, "modern").text)

    async def _resolve_task(
        self,
        path: str,
        who: Principal,
        sealed: str,
        caller: Caller,
        method: str = "tasks/get",
        more: Mapping[str, Any] | None = None,
    ) -> TaskRequest:
        """The request that a client's id leads to.

        Raises:
            RequestError: There is no such task of this principal.
        """
        ref = await self.requests.tasks.open(sealed, who.id)
        view = self._view(path, who)
        record = None if view is None else view.find(f"{ref.server}:{ref.tool}")
        if record is None or record.key != (ref.server, ref.tool):  # it may no longer be seen
            raise unknown_task()
        return TaskRequest(method, sealed, ref, record, more or {}, caller, keeps_uris=self.passed is not None)

    def _view(self, path: str, who: Principal) -> CatalogView | None:
        """The view at a path; at the address of a toolset, which is no view, that at `/mcp`."""
        return self.views.at("" if path.startswith(_TOOLSET) else path, self.views.reach(who))

    @asynccontextmanager
    async def follow_tasks(
        self, path: str, who: Principal, sealed: Sequence[str], tell: Callable[[Mapping[str, Any]], Awaitable[None]]
    ) -> AsyncIterator[Sequence[str]]:
        """Look at tasks for as long as it is open; gives those that will be told of.

        Args:
            path: Where the client came in.
            who: On whose behalf.
            sealed: Ids as the client has them.
            tell: Takes the state of a task whenever it is another one.
        """
        caller = Caller(who.id, {}, None, extensions=TASK_DECLARED, is_root=True)
        finds: dict[str, Callable[[], Awaitable[TaskRequest]]] = {}
        for each in dict.fromkeys(sealed[:FOLLOWED]):
            find = partial(self._resolve_task, path, who, each, caller)
            try:
                await find()
            except RequestError as error:
                log.debug("a task is not followed: %s", error)
            else:
                finds[each] = find
        followers = [spawn(self._follow(find, tell), "follow a task") for find in finds.values()]
        try:
            yield [*finds]
        finally:
            for follower in followers:
                follower.cancel()
            if followers:
                await asyncio.wait(followers)

    async def _follow(
        self, find: Callable[[], Awaitable[TaskRequest]], tell: Callable[[Mapping[str, Any]], Awaitable[None]]
    ) -> None:
        """Tell each state of a task until it is over, or may no longer be seen."""
        try:
            ref = (await find()).ref
            if (upstream := self.fleet.upstreams.get(ref.server)) is not None:
                with upstream.watch.tasks.watch_task(ref.task) as heard:
                    await self._follow_heard(heard, find, tell)
        except (ProxyError, msgspec.DecodeError, RecursionError) as error:
            log.debug("a task is no longer followed: %s", error)

    async def _follow_heard(
        self,
        heard: "asyncio.Queue[bytes]",
        find: Callable[[], Awaitable[TaskRequest]],
        tell: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        """The same, by what its server tells of it, and by looking: servers need not tell."""
        told: object = None
        wait_s, news = FOLLOW_S, None
        while True:
            try:
                # Found anew: what may be seen changes, and its process may end.
                raw = await self.requests.ask(msgspec.structs.replace(await find(), told=news))
            except RequestError:
                raise
            except ProxyError as error:
                log.debug("a task could not be looked at: %s", error)
                wait_s = min(2 * wait_s, FOLLOW_FAILED_S)
            else:
                state: dict[str, Any] = read_writable(raw.text)
                wait_s = max(FOLLOW_S, pause_s(decode_members(raw.text)))
                state.pop("resultType", None)
                _drop_connection_meta(state)
                if state != told:
                    told = state
                    await tell(state)
                if state.get("status") in _OVER:
                    return
            news = await _next_told(heard, wait_s)


async def _next_told(heard: "asyncio.Queue[bytes]", wait_s: float) -> RawResult | None:
    """The next state that a server tells; None once it is time to look."""
    await asyncio.sleep(TOLD_S)
    try:
        async with asyncio.timeout(wait_s - TOLD_S):
            return RawResult(await heard.get())
    except TimeoutError:
        return None


def _drop_connection_meta(state: dict[str, Any]) -> None:
    """Leave out what a server says of its own connection."""
    meta = state.pop("_meta", None)
    kept = {key: value for key, value in (meta or {}).items() if not key.startswith(_CONNECTION_PREFIX)}
    if kept:
        state["_meta"] = kept


def require_declared(extensions: Extensions | None) -> None:
    """Pass if a request declares the extension.

    Raises:
        MCPError: It does not.
    """
    if TASKS not in (extensions or {}):
        required: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise request_error(
            MISSING_CAPABILITY, "Missing required client capability: the extension for tasks.", required
        )
