"""The first call of a client that was just connected, waited for on a terminal."""

import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio

from smart_mcp_proxy.cli.commands.operate.activity import POLL_S, StoredLog, open_stored_log
from smart_mcp_proxy.cli.support.api import find_running_gateways
from smart_mcp_proxy.cli.support.output import clean, say
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.policy import short_digest
from smart_mcp_proxy.web.rest.route import COMMAND_LINE

if TYPE_CHECKING:
    from smart_mcp_proxy.client_files import Door, KnownClient
    from smart_mcp_proxy.settings import Settings

WAIT_S = 300.0
"""As long as a sign-in is waited for: somebody restarts a program and types a sentence."""
_PAGE = "100"
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_COMMAND_LINE = short_digest(COMMAND_LINE)
"""Session of the commands' own searches and calls in the log."""


def is_seen_here(door: "Door") -> bool:
    """Whether calls that come in this way are in a log of this machine."""
    return not door.url or urlsplit(door.url).hostname in _LOOPBACK


@dataclass(slots=True)
class FirstCall:
    """Looks for the first call of one of some clients; decides, and waits for nothing.

    Attributes:
        clients: Those that were connected.
        began_s: When that was, in seconds since 1970.
        arrived: Names of those that have connected, as they call themselves.
    """

    clients: Sequence["KnownClient"]
    began_s: float
    arrived: set[str] = field(default_factory=set)

    def is_wanted(self, name: str) -> bool:
        """Whether a client of this name may be one of them; each may where the name of one is not known."""
        parts = [client.says for client in self.clients]
        return not all(parts) or any(part in name.casefold() for known in parts for part in known)

    def look(self, status: Mapping[str, Any]) -> None:
        """Note the clients that a running gateway has."""
        here = [session["client"] for session in status.get("sessions", ())]
        here += [one["client"] for one in status.get("clients", ()) if one["last_seen"] >= self.began_s]
        self.arrived.update(filter(self.is_wanted, here))

    def take(self, records: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """Read records of the log in their order; returns the first call of a client that has arrived."""
        for record in records:
            if record["kind"] == "session" and self.is_wanted(record["subject"]):
                self.arrived.add(record["subject"])
            is_call = record["kind"] in ("search", "call") and not record["parent"]
            if is_call and self.arrived and record["session"] != _COMMAND_LINE:
                return record
        return None


async def show_first_call(settings: "Settings", clients: Sequence["KnownClient"]) -> None:
    """Say when the first call of these clients comes; Ctrl-C or the end of the time end the wait.

    The clients stay connected however it ends.
    """
    seeking = FirstCall(clients, time.time())
    try:
        found = await _wait(settings, seeking)
    except ProxyError as error:  # the files are written: no failure of that
        say(f"It cannot be seen whether a call comes: {error.message}")
        return
    if found is None:
        say("No call has come yet. Whether one has: mcpproxy activity list")
        return
    names = ", ".join(sorted(seeking.arrived))
    what = f"search for '{found['subject']}'" if found["kind"] == "search" else f"call of {found['subject']}"
    say(clean(f"It works: {names} sent its first request, a {what} ({found['outcome']})."), style="green")
    say("See what else comes: mcpproxy activity watch")


async def _wait(settings: "Settings", seeking: FirstCall) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = None
    with anyio.move_on_after(WAIT_S), anyio.open_signal_receiver(signal.SIGINT) as interrupts:
        # Not before: from here on Ctrl-C ends the wait and not the command.
        say(f"\nWaiting up to {WAIT_S:g} s for the first call; Ctrl-C ends the wait, nothing else.", style="dim")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_at, interrupts, tasks.cancel_scope)
            async with open_stored_log(settings) as log:
                found = await _first(settings, log, seeking)
            tasks.cancel_scope.cancel()
    return found


async def _end_at(interrupts: Any, scope: anyio.CancelScope) -> None:
    async for _ in interrupts:
        scope.cancel()
        return


async def _first(settings: "Settings", log: StoredLog, seeking: FirstCall) -> Mapping[str, Any]:
    place = (await log.activity({"limit": "1"}))["last"]
    while True:
        for _, status in await find_running_gateways(settings.data_dir):
            seeking.look(status)
        page = await log.activity({"after": str(place), "limit": _PAGE})
        if found := seeking.take(page["items"]):
            return found
        place = page["last"] if page["next"] is None else page["next"]
        await anyio.sleep(POLL_S)
