"""Managing the servers: one set of operations for the agent's tool, REST and the command line."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from anyio import to_thread

from smart_mcp_proxy.desktop.present import name_present_client
from smart_mcp_proxy.errors import ConflictError, ProxyError
from smart_mcp_proxy.gateway.shared.refusals import server_quarantined
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import ServerState, ServerStatus
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import (
    Allowance,
    Author,
    ServerConfig,
    ServerEdit,
    ServerEdits,
    describe_isolation,
    mask_entry,
    mask_unless_quarantined,
    require_named,
)
from smart_mcp_proxy.telemetry import Activity
from smart_mcp_proxy.upstream import Fleet, find_shown_paths

NOTED_CHARS = 200
"""Characters of a server's name in a record; a name that is refused may be any text."""

Apply = Callable[[Mapping[str, ServerConfig]], Awaitable[None]]
"""Makes servers the ones in force."""
Follow = Callable[[], Awaitable[None]]
"""Puts in force what the server file says now."""


class ServerView(msgspec.Struct, frozen=True):
    """A configured server as it is shown: its state, and its entry without secrets."""

    name: str
    transport: str
    state: str
    tools: int
    error: str
    hint: str
    breaker: str
    quarantined: bool
    config: dict[str, Any]


class ServerPage(ServerView, frozen=True):
    """The same for whoever decides by what is shown.

    Attributes:
        revision: Of the file that it was read from.
        isolation: How its process is held; empty where there is none of ours.
        reach: What of its user's it may reach, or might in a sandbox; None where that is not known.
    """

    revision: str
    isolation: str
    reach: Allowance | None


class ServersView(msgspec.Struct, frozen=True):
    """All configured servers, and the revision of the file that names them (empty where there is no file)."""

    servers: list[ServerView]
    revision: str


class ServerChange(msgspec.Struct, frozen=True):
    """Outcome of an operation on one server.

    Attributes:
        name: The server.
        state: Its state afterwards; `removed` where it is gone.
        changed: Fields of its entry that are different, by path, without values.
        quarantined: Whether it waits for its user.
        message: What happened and what comes next, for a person or a model.
        revision: Of the server file.
        config: Its entry now, secrets masked.
        warnings: What else is to be known.
    """

    name: str
    state: str
    changed: list[str]
    quarantined: bool
    message: str
    revision: str
    config: dict[str, Any] | None
    warnings: list[str]


class ServerImported(msgspec.Struct, frozen=True):
    """Outcome of an import: the servers added, and why each of the others was left out."""

    added: list[str]
    skipped: dict[str, str]
    quarantined: bool
    message: str
    revision: str


@dataclass(eq=False, repr=False)
class Management:
    """Operations on the servers.

    Each change names its author (the right, see `Author`) and its principal, which the record names; without one it is
    the author's own.

    Attributes:
        edits: Changes the server file.
        fleet: The servers at work.
        visible: The configuration in force, and the tools.
        list_again: Lists the named server's tools, soon.
        apply: Makes other servers the ones in force.
        record: Keeps a record of each change.
        shown: A server's status with what else is known of it.
        environ: The gateway's environment.
    """

    edits: ServerEdits
    fleet: Fleet
    visible: CatalogView
    list_again: Callable[[str], None]
    apply: Apply
    record: Callable[[Activity], None]
    shown: Callable[[ServerStatus], ServerStatus] = lambda status: status
    environ: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._follow: Follow | None = None

    def apply_with(self, follow: "Follow") -> None:
        """Leaves putting changes in force to who follows the file anyway, so that each is put in force once."""
        self._follow = follow

    # --- looking

    async def servers(self) -> ServersView:
        """Every server of the configuration."""
        entries, revision = await self._entries()
        return ServersView([self._view(name, entry) for name, entry in entries.items()], revision)

    async def server(self, name: str, by: Author = "agent", *, is_review: bool = False) -> ServerPage:
        """Return one server, with its quarantined entry unmasked for a user who reviews it.

        So it is shown on a review by the operator over the network, too: nobody approves what a mask hides.

        Raises:
            ServerNotFoundError: There is none of that name.
        """
        entries, revision = await self._entries()
        require_named(name, entries)
        entry = entries[name]
        view = self._view(name, entry)
        if (by == "operator" or (by == "web" and is_review)) and isinstance(entry, Mapping):
            view = msgspec.structs.replace(view, config=mask_unless_quarantined(entry))
        held = self.visible.servers.get(name)
        return ServerPage(
            **msgspec.structs.asdict(view),
            revision=revision,
            isolation=describe_isolation(held) if held else "",
            reach=await to_thread.run_sync(find_shown_paths, held, self.environ) if held else None,
        )

    async def file(self) -> tuple[str, str]:
        """Path and revision of the server file; empty where the servers do not come from one."""
        try:
            found = await to_thread.run_sync(self.edits.read)
        except ProxyError:
            return "", ""
        return str(found.path), found.revision

    async def logs(self, name: str, count: int) -> list[str]:
        """The last lines that a server wrote for people, secrets hidden.

        Raises:
            ServerNotFoundError: There is none of that name.
            UpstreamError: Another worker runs it, and does not answer.
        """
        require_named(name, self.visible.servers)
        return await self.fleet.logs(name, count)

    # --- changing

    async def add(
        self, name: str, entry: Mapping[str, Any], by: Author, revision: str | None = None, *, principal: str = ""
    ) -> ServerChange:
        """Adds a server; raises what `ServerEdits.add` does."""
        return await self._do("added", name, by, partial(self.edits.add, name, entry, by, based_on=revision), principal)

    async def patch(
        self, name: str, patch: Mapping[str, Any], by: Author, revision: str | None = None, *, principal: str = ""
    ) -> ServerChange:
        """Merges a change into a server's entry; raises what `ServerEdits.patch` does."""
        return await self._do(
            "changed", name, by, partial(self.edits.patch, name, patch, by, based_on=revision), principal
        )

    async def replace(
        self, name: str, entry: Mapping[str, Any], by: Author, revision: str | None = None, *, principal: str = ""
    ) -> ServerChange:
        """Gives a server another entry; raises what `ServerEdits.patch` does."""
        change = partial(self.edits.replace, name, entry, by, based_on=revision)
        return await self._do("changed", name, by, change, principal)

    async def switch(
        self, name: str, by: Author, revision: str | None = None, *, is_enabled: bool, principal: str = ""
    ) -> ServerChange:
        """Enables or disables a server; raises what `ServerEdits.patch` does."""
        outcome = "enabled" if is_enabled else "disabled"
        change = partial(self.edits.switch, name, by, is_enabled=is_enabled, based_on=revision)
        return await self._do(outcome, name, by, change, principal)

    async def approve_server(
        self, name: str, by: Author, revision: str | None = None, *, principal: str = ""
    ) -> ServerChange:
        """Lifts a server's quarantine; raises what `ServerEdits.approve_server` does."""
        change = partial(self.edits.approve_server, name, by, based_on=revision)
        return await self._do("approved", name, by, change, principal)

    async def remove(self, name: str, by: Author, revision: str | None = None, *, principal: str = "") -> ServerChange:
        """Removes a server; raises what `ServerEdits.remove` does."""
        return await self._do("removed", name, by, partial(self.edits.remove, name, by, based_on=revision), principal)

    async def import_text(self, text: str, by: Author, *, principal: str = "") -> ServerImported:
        """Adds the servers of a client's configuration; raises what `ServerEdits.import_text` does."""
        done = await to_thread.run_sync(self.edits.import_text, text, by)
        for name in done.added:
            self._note("imported", name, by, principal=principal)
        problem = await self._put_in_force(done.added)
        count = len(done.added)
        words = f"{count} server{' is' if count == 1 else 's are'} added, {len(done.skipped)} left out."
        waiting = _format_quarantine_hint(done.added[0]) if done.is_quarantined else ""
        if done.is_quarantined and count > 1:
            waiting = f"They are quarantined and not started until their user approves each: {_approval(done.added[0])}"
        message = " ".join(filter(None, (words, waiting, problem)))
        return ServerImported(list(done.added), dict(done.skipped), done.is_quarantined, message, done.revision)

    async def restart(self, name: str, by: Author, *, principal: str = "") -> ServerChange:
        """Ends a server's connection and makes a new one.

        Raises:
            ServerNotFoundError: There is none of that name.
            QuarantinedError: It waits for its user's approval.
            ConflictError: It is disabled.
            UpstreamError: Another worker runs it, and does not answer.
        """
        view = self._startable("restarted", name, by, principal)
        await self.fleet.restart(name)
        return self._build_operation_result(view, "is restarting.")

    async def refresh(self, name: str, by: Author, *, principal: str = "") -> ServerChange:
        """Has a server's tools listed again; raises what `restart` does."""
        view = self._startable("refreshed", name, by, principal)
        self.list_again(name)
        is_ready = view.state == ServerState.READY
        return self._build_operation_result(
            view, "is being listed again." if is_ready else "is listed as soon as it is ready.", state=view.state
        )

    # --- the parts of these

    async def _entries(self) -> tuple[Mapping[str, Any], str]:
        """Entries by name as they are written, and the file's revision; those in force where there is no file."""
        in_force = {name: config.raw for name, config in self.visible.servers.items()}
        try:
            found = await to_thread.run_sync(self.edits.read)
        except ProxyError:  # inline, or broken: what is in force still serves
            return in_force, ""
        return {**in_force, **found.entries}, found.revision

    def _view(self, name: str, entry: Any) -> ServerView:
        upstream = self.fleet.upstreams.get(name)
        shown = mask_entry(entry) if isinstance(entry, Mapping) else {}
        is_quarantined = shown.get("quarantined") is True
        status = self.shown(upstream.status if upstream else _build_unused_status(name, is_quarantined=is_quarantined))
        return ServerView(
            name=name,
            transport=status.transport,
            state=status.state.value,
            tools=len(self.visible.of_server(name)),
            error=status.cause,
            hint=status.hint,
            breaker=status.breaker,
            quarantined=is_quarantined,
            config=shown,
        )

    def _startable(self, change: str, name: str, by: Author, principal: str) -> ServerView:
        """A server that may be at work; keeps a record of what is about to be done with it, refused or not."""
        try:
            view = self._require_operable(name)
        except ProxyError as error:
            self._note(change, name, by, error.error_code, principal=principal)
            raise
        self._note(change, name, by, principal=principal)
        return view

    def _require_operable(self, name: str) -> ServerView:
        configured = self.visible.servers
        require_named(name, configured)
        view = self._view(name, configured[name].raw)
        if view.quarantined:
            raise server_quarantined(name)
        if configured[name].disabled:
            raise ConflictError(f"Server {name!r} is disabled.", hint="Enable it first.", code="server_disabled")
        return view

    def _build_operation_result(self, view: ServerView, words: str, state: str | None = None) -> ServerChange:
        return ServerChange(
            name=view.name,
            state=state or self._state(view.name, is_quarantined=False),
            changed=[],
            quarantined=False,
            message=f"Server {view.name!r} {words}",
            revision="",
            config=view.config,
            warnings=[],
        )

    async def _do(
        self, outcome: str, name: str, by: Author, change: Callable[[], ServerEdit], principal: str = ""
    ) -> ServerChange:
        """Makes a change, puts it in force, and keeps a record of it, refused or not."""
        try:
            edit = await to_thread.run_sync(change)
        except ProxyError as error:
            self._note(outcome, name, by, error.error_code, principal=principal)
            raise
        self._note(outcome, name, by, changed=edit.changed, principal=principal)
        problem = await self._put_in_force([edit.name])
        message = f"Server {edit.name!r} is {outcome if edit.changed else 'as it was'}."
        if edit.is_quarantined:
            message += f" {_format_quarantine_hint(edit.name)}"
        return ServerChange(
            name=edit.name,
            state="removed" if edit.entry is None else self._state(edit.name, is_quarantined=edit.is_quarantined),
            changed=list(edit.changed),
            quarantined=edit.is_quarantined,
            message=message,
            revision=edit.revision,
            config=None if edit.entry is None else dict(edit.entry),
            warnings=[*edit.warnings, *filter(None, [problem])],
        )

    def _note(
        self, change: str, name: str, by: Author, code: str = "ok", changed: Sequence[str] = (), *, principal: str = ""
    ) -> None:
        subject = name[:NOTED_CHARS]
        detail = {"change": change, "fields": list(changed), "by": by} | name_present_client()
        self.record(Activity("config", principal or by, subject, code, 0.0, time.time(), detail, server=subject))

    async def _put_in_force(self, names: Iterable[str]) -> str:
        """Returns what went wrong, in words; the change itself is stored whatever that is."""
        try:
            if self._follow is not None:
                await self._follow()
            else:
                await self._apply_named(names)
        except ProxyError as error:
            return f"It is saved, but not in force completely: {error}"
        return ""

    async def _apply_named(self, names: Iterable[str]) -> None:
        """Puts these servers in force as the file has them; the others may come from elsewhere."""
        file = await to_thread.run_sync(self.edits.load)
        servers = dict(self.visible.servers)
        for name in names:
            if name in file.servers:
                servers[name] = file.servers[name]
            else:
                servers.pop(name, None)
        await self.apply(servers)

    def _state(self, name: str, *, is_quarantined: bool) -> str:
        upstream = self.fleet.upstreams.get(name)
        if is_quarantined or upstream is None:
            return ServerState.QUARANTINED.value if is_quarantined else ServerState.DISCONNECTED.value
        return upstream.status.state.value


def _build_unused_status(name: str, *, is_quarantined: bool) -> ServerStatus:
    """The status of an entry that no server was made of."""
    if is_quarantined:
        return ServerStatus(name, "stdio", ServerState.QUARANTINED, hint=_format_quarantine_hint(name))
    return ServerStatus(
        name,
        "stdio",
        ServerState.ERROR,
        "Its entry cannot be used, or is not in force here.",
        "mcpproxy doctor says why.",
    )


def _format_quarantine_hint(name: str) -> str:
    return f"It is quarantined and not started until its user approves it: {_approval(name)}"


def _approval(name: str) -> str:
    return f"mcpproxy server approve {shell_word(name)}"
