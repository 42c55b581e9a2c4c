"""The gateway as the commands see it: its REST API, and where running gateways are found."""

import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import httpx2
from anyio import to_thread

from smart_mcp_proxy.cli.support.failure import add_next_step
from smart_mcp_proxy.cli.support.output import say, warn
from smart_mcp_proxy.desktop.joining import peer_pid
from smart_mcp_proxy.desktop.places import sockets_folder
from smart_mcp_proxy.desktop.spelling import spell_command
from smart_mcp_proxy.errors import ConfigError, ProxyError, RefusedError
from smart_mcp_proxy.servers import ServerConfig, ServerFile, load_configured_servers
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.listening import describe_gateway, find_other_gateway

Origin = Literal["running", "stored", "own"]
"""Origin of an answer: a running gateway, the stored catalog alone, or a gateway of our own with connected servers."""

PROBE_S = 2.0
"""A gateway that does not answer for so long is taken for hung and left alone."""
_NOBODY = (
    b'{"join": {"version": "", "pid": 0, "directory": "", "data_dir": "", "source": "", "profile": "", "settings": {}}}'
    b"\n"
)
"""A greeting that no gateway lets in, and each answers."""


class Api:
    """Questions to one gateway.

    Args:
        client: Speaks to it; `base_url` is where its REST begins.
        origin: Who answers.
    """

    def __init__(self, client: httpx2.AsyncClient, origin: Origin) -> None:
        self._client = client
        self.origin = origin

    async def status(self) -> dict[str, Any]:
        """The gateway and its servers."""
        return await self._ask("GET", "status")

    async def logs(self, server: str, lines: int) -> list[str]:
        """The last lines that a server wrote for people."""
        answer = await self._ask("GET", f"servers/{quote(server, safe='')}/logs", {"lines": lines})
        return list(answer["lines"])

    async def tools(self, server: str | None = None) -> list[dict[str, Any]]:
        """All visible tools in a few words each, of one server if it is named."""
        tools: list[dict[str, Any]] = await self._send("GET", "tools", {"server": server} if server else {})
        return tools

    async def tool(self, name: str) -> dict[str, Any]:
        """Return one tool's whole definition.

        Raises:
            ProxyError: There is none of that name; if that may be because its server is not ready, it says so.
        """
        return await self._ask("GET", f"tools/{quote(name, safe='')}")

    async def search(
        self,
        query: str,
        *,
        limit: int | None = None,
        detail: str = "compact",
        servers: Sequence[str] = (),
        profile: str | None = None,
        explain: bool = False,
        types: Sequence[str] = (),
        why_not: str | None = None,
    ) -> dict[str, Any]:
        """The answer of `retrieve_tools`; with `explain`, each tool says why it was found.

        With `why_not`, the name of a tool, the answer is where that one stands.
        """
        params: dict[str, Any] = {"q": query, "detail": detail, "server": list(servers), "types": list(types)}
        if limit is not None:
            params["limit"] = limit
        if explain:
            params["why"] = "true"
        params |= {key: name for key, name in (("profile", profile), ("why_not", why_not)) if name is not None}
        return await self._ask("GET", "search", params)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The result of calling a tool, a failure of the tool's own included."""
        return await self._ask("POST", "call", body={"name": name, "arguments": dict(arguments)})

    async def check(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Whether tools can be called now, one outcome a name."""
        outcomes: list[dict[str, Any]] = await self._send("GET", "check", {"tool": list(names)})
        return outcomes

    async def forget_examples(self, name: str | None, question: str | None) -> int:
        """Forgets questions learned from use, of all tools if none is named; returns how many that were."""
        params = {"tool": name, "question": question}
        answer = await self._ask("DELETE", "examples", {key: text for key, text in params.items() if text is not None})
        return int(answer["forgotten"])

    async def manage(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Operate on the servers; returns the answer of REST."""
        return await self._ask(method, path, body=body)

    async def approvals(self, server: str | None = None, *, has_changes: bool = False) -> dict[str, Any]:
        """Definitions that wait for approval, of one server or all, and whether the record was lost."""
        which = {} if server is None else {"server": server}
        return await self._ask("GET", "approvals", which | ({"changes": "true"} if has_changes else {}))

    async def count_waiting(self, server: str | None = None) -> int:
        """Number of tools that wait for approval, of one server or all."""
        which = {} if server is None else {"server": server}
        return int((await self._ask("GET", "approvals", {**which, "blocked": "false", "limit": "1"}))["total"])

    async def approve(self, seen: Mapping[str, str], *, reopens: bool = False, lifts: bool = True) -> dict[str, Any]:
        """Approve definitions by name and hash.

        Args:
            seen: The hash that the user saw, by tool.
            reopens: Whether first lists are trusted again, where the record of approvals was lost.
            lifts: Whether tools among them that are blocked are no longer.

        Returns:
            The approved ones as `approved`, those that changed or were blocked meanwhile as `moved`.
        """
        tools = [{"name": name, "hash": hash_} for name, hash_ in seen.items()]
        body = {"tools": tools, "reopens": reopens, "lifts_blocks": lifts}
        return await self._ask("POST", "approvals/approve", body=body)

    async def reseal(self) -> int:
        """Believe all decisions about tools as they stand; returns how many."""
        return int((await self._ask("POST", "approvals/reseal"))["decisions"])

    async def block(self, name: str) -> str:
        """Keeps a tool from agents; its full name."""
        answer = await self._ask("POST", "approvals/block", body={"name": name})
        return str(answer["name"])

    async def unblock(self, name: str) -> str:
        """Lifts a block; the tool's full name."""
        answer = await self._ask("POST", "approvals/unblock", body={"name": name})
        return str(answer["name"])

    async def create_token(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A new token for an agent, shown this once."""
        return await self._ask("POST", "tokens", body=body)

    async def tokens(self) -> list[dict[str, Any]]:
        """All tokens that were made for agents, oldest first."""
        answer = await self._ask("GET", "tokens")
        return list(answer["tokens"])

    async def revoke_token(self, name: str) -> None:
        """Ends a token for good."""
        await self._ask("DELETE", f"tokens/{quote(name, safe='')}")

    async def page_link(self) -> dict[str, Any]:
        """A link that opens the gateway's page once: url, expires_in_s."""
        return await self._ask("POST", "page/links")

    async def activity(self, words: Mapping[str, str]) -> dict[str, Any]:
        """A page of the activity log: items, next, last. The words are those of GET /api/v1/activity."""
        return await self._ask("GET", "activity", words)

    async def activity_record(self, record_id: str) -> dict[str, Any]:
        """Return one record of the activity log, by its id or the end of its id."""
        return await self._ask("GET", f"activity/{quote(record_id, safe='')}")

    async def stats(self, words: Mapping[str, str]) -> dict[str, Any]:
        """Figures of the activity log. The words are those of GET /api/v1/stats."""
        return await self._ask("GET", "stats", words)

    async def _ask(
        self, method: str, path: str, params: Mapping[str, Any] | None = None, body: Any = None
    ) -> dict[str, Any]:
        answer: dict[str, Any] = await self._send(method, path, params, body)
        return answer

    async def _send(self, method: str, path: str, params: Mapping[str, Any] | None, body: Any = None) -> Any:
        try:
            reply = await self._client.request(method, path, params=params, json=body)
        except httpx2.HTTPError as exc:
            raise ProxyError(
                f"The running gateway stopped answering: {exc or type(exc).__name__}.",
                hint="It may have been stopped meanwhile; try again.",
                delivery="unknown",
            ) from exc
        if reply.is_error:
            raise _read_error(reply)
        return reply.json()


def _read_error(reply: httpx2.Response) -> ProxyError:
    """The error as the gateway raised it."""
    try:
        return ProxyError.from_dict(reply.json()["error"])
    except (ValueError, KeyError):
        return ProxyError(f"The gateway answered with HTTP {reply.status_code}.")


@asynccontextmanager
async def open_running(settings: Settings) -> AsyncIterator[Api | None]:
    """The newest gateway that runs on the data directory; None if none does."""
    found = await find_running_gateways(settings.data_dir)
    if not found:
        yield None
        return
    path, status = found[0]
    async with _client(path, timeout_s=None) as client:
        say(f"Answered by the running gateway (process {status['pid']}).", style="dim")
        yield Api(client, "running")


@asynccontextmanager
async def open_each_running(settings: Settings) -> AsyncIterator[list[Api]]:
    """All gateways that run on the data directory, newest first."""
    async with AsyncExitStack() as stack:
        found = await find_running_gateways(settings.data_dir)
        clients = [await stack.enter_async_context(_client(path, timeout_s=None)) for path, _ in found]
        yield [Api(client, "running") for client in clients]


async def read_servers(settings: Settings) -> Mapping[str, ServerConfig]:
    """The servers of `read_config`."""
    return (await read_config(settings)).servers


def tell_other_gateway(settings: Settings) -> None:
    """Name the gateway that has our port and another data directory, with the command that asks it."""
    if holder := find_other_gateway(settings.port, settings.data_dir):
        say(f"Port {settings.port} is taken. {describe_gateway(holder)}")
        say(f"To ask it: {spell_command(*sys.argv[1:], data_dir=holder.data_dir)}")


async def read_config(settings: Settings, *, lists_refused: bool = False) -> ServerFile:
    """Read the configured servers and profiles; problems of single ones are printed.

    Args:
        settings: Say where.
        lists_refused: Whether a file without a usable server will do, and the servers themselves say what is wrong.

    Raises:
        ConfigError: The configuration cannot be read, or names no usable server.
    """
    file = await to_thread.run_sync(load_configured_servers, settings, Path.cwd())
    if not (file.servers if lists_refused else file.usable):
        problem = file.problems[0]
        if not file.servers and (holder := find_other_gateway(settings.port, settings.data_dir)):
            message = f"{problem.message} Port {settings.port} is taken. {describe_gateway(holder)}"
            hint = "To talk to it, use that data directory."
            raise add_next_step(ConfigError(message, hint=hint), spell_command(*sys.argv[1:], data_dir=holder.data_dir))
        raise add_next_step(ConfigError(problem.message, hint=problem.hint), "mcpproxy init")
    for problem in file.problems:
        if not (lists_refused and problem.severity == "error" and problem.server in file.servers):
            warn(str(problem))
    return file


async def find_running_gateways(data_dir: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The sockets of the gateways that run on a data directory, newest first, each with its status.

    What a killed process left behind is removed.

    Raises:
        ProxyError: One refuses this process, as it does those of its servers.
    """
    found = []
    for path in await to_thread.run_sync(_list_sockets, data_dir):
        try:
            async with _client(path, timeout_s=PROBE_S) as client:
                reply = await client.get("status")
                if reply.status_code == RefusedError.http_status:
                    raise add_next_step(_read_error(reply), "mcpproxy status")
                found.append((path, reply.raise_for_status().json()))
        except httpx2.ConnectError:
            with suppress(OSError):
                path.unlink()
        except (httpx2.HTTPError, ValueError):
            continue
    return found


def find_silent_gateways(data_dir: Path, running: Sequence[Mapping[str, Any]]) -> list[ProxyError]:
    """Find gateways that clients would join, but which say nothing for `PROBE_S`; an error for each.

    Args:
        data_dir: Whose gateways.
        running: The status of those that answer.
    """
    silent = []
    for path in Path(sockets_folder(str(data_dir))).glob("join-*.sock"):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as link:
            link.settimeout(PROBE_S)
            link.connect(str(path))
            if (pid := peer_pid(link)) in [each["pid"] for each in running]:
                continue
            try:
                link.sendall(_NOBODY)
                link.recv(1)
            except TimeoutError:
                message = (
                    f"A gateway starts or hangs: process {pid} takes clients, and has not answered for {PROBE_S:g} s."
                )
                silent.append(ProxyError(message, hint=f"If it stays so, end it; clients start another: kill -9 {pid}"))
    return silent


def _list_sockets(data_dir: Path) -> list[Path]:
    return sorted(Path(sockets_folder(str(data_dir))).glob("[0-9]*.sock"), key=_read_mtime_s, reverse=True)


def _read_mtime_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _client(path: Path, *, timeout_s: float | None) -> httpx2.AsyncClient:
    """A client of one gateway's socket. Without a timeout: the gateway has its own for every call."""
    transport = httpx2.AsyncHTTPTransport(uds=str(path))
    return httpx2.AsyncClient(
        transport=transport, base_url="http://gateway/api/v1/", timeout=timeout_s, trust_env=False
    )
