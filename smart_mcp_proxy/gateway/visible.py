"""Which tools may be seen and called, and under which name a caller reaches one."""

from collections.abc import Collection, Mapping, Set
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec
from anyio import to_thread

from smart_mcp_proxy.catalog import Catalog, Snapshot
from smart_mcp_proxy.errors import RefusedError, ServerNotFoundError, ToolNotFoundError
from smart_mcp_proxy.models import Document, ServerState, ToolRecord
from smart_mcp_proxy.names import parse_canonical
from smart_mcp_proxy.servers import Profile, ServerConfig

__all__ = ["Visible", "document_of"]

NEAR_MISSES = 3
NAME_LIMIT_CHARS = 200
"""Of a name that does not exist, no more is shown or compared."""


def document_of(record: ToolRecord, *, has_examples: bool = False) -> Document:
    """What search may know of a tool: its words, none of its schema's structure.

    Args:
        record: The tool.
        has_examples: Whether questions learned from use are among them.
    """
    definition = msgspec.json.decode(record.raw)
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    parameters = (
        tuple((str(name), _text(value, "description")) for name, value in properties.items())
        if isinstance(properties, dict)
        else ()
    )
    return Document(
        id=record.id,
        server=record.key.server,
        name=record.key.tool,
        title=_text(definition, "title"),
        description=_text(definition, "description"),
        parameters=parameters,
        listed_name=record.listed_name,
        examples=record.examples if has_examples else (),
    )


def _text(value: Any, member: str) -> str:
    text = value.get(member) if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""


class Nearest(Protocol):
    """Finds names close to one that does not exist."""

    def __call__(self, name: str, n: int, *, allowed: Set[int] | None) -> list[int]:
        """Ids of up to `n` tools, best first; of `allowed` only, if that is given."""


class _Rules(NamedTuple):
    """What the configuration shows: servers with their filters, and of these a profile's part."""

    servers: Mapping[str, ServerConfig]
    profile: Profile | None

    def offers(self, record: ToolRecord) -> bool:
        server, tool = record.key
        config = self.servers.get(server)
        is_offered = config is not None and not config.disabled and config.tools.allows(tool)
        return is_offered and (self.profile is None or self.profile.allows(server, tool))


class _Seen(NamedTuple):
    """The visible records of one state of catalog and configuration."""

    snapshot: Snapshot
    rules: _Rules
    by_id: Mapping[int, ToolRecord]
    by_server: dict[str, tuple[ToolRecord, ...]]
    """Filled as it is asked for."""


class Visible:
    """The tools of the catalog that this gateway's configuration lets a caller see.

    Args:
        catalog: Holds what was listed, also by servers that are not configured here.
        servers: The current configuration, by name.
        nearest: Names close to a given one, best first, as ids; of these tools only, if they are given.
        profile: The part of them that is seen; None for all.
    """

    def __init__(
        self,
        catalog: Catalog,
        servers: Mapping[str, ServerConfig],
        nearest: Nearest,
        profile: Profile | None = None,
    ) -> None:
        self._catalog = catalog
        self._nearest = nearest
        self._rules = _Rules({}, None)
        self.reconfigure(servers, profile)
        self._seen = _Seen(Snapshot(), self._rules, {}, {})

    def sees(self, record: ToolRecord) -> bool:
        """Whether this tool may be searched, described and called here."""
        return self._rules.offers(record)

    @property
    def servers(self) -> Mapping[str, ServerConfig]:
        """The configured servers, as far as they are seen here, by name."""
        return self._rules.servers

    def reconfigure(self, servers: Mapping[str, ServerConfig], profile: Profile | None = None) -> None:
        """Goes by another configuration from now on."""
        if profile is not None and profile.servers:
            servers = {name: config for name, config in servers.items() if name in profile.servers}
        self._rules = _Rules(servers, profile)

    def state(self) -> object:
        """The same object until catalog or configuration change."""
        return self._now()

    def is_pinned(self, record: ToolRecord) -> bool:
        """Whether the configuration always lists this tool."""
        server, tool = record.key
        profile = self._rules.profile
        return tool in self.servers[server].pin or (profile is not None and str(record.key) in profile.pin)

    def records(self) -> Collection[ToolRecord]:
        """Every visible tool."""
        return self._now().by_id.values()

    def of_server(self, server: str) -> tuple[ToolRecord, ...]:
        """A server's visible tools, oldest first; the same object until something changes."""
        seen = self._now()
        if server not in seen.by_server:
            listed = seen.snapshot.by_server.get(server, ())
            seen.by_server[server] = tuple(record for record in listed if record.id in seen.by_id)
        return seen.by_server[server]

    def _now(self) -> _Seen:
        """What is visible now, looked through once per state of catalog and configuration, in whichever thread."""
        seen, snapshot, rules = self._seen, self._catalog.snapshot, self._rules
        if seen.snapshot is not snapshot or seen.rules is not rules:
            by_id = {id_: each for id_, each in snapshot.by_id.items() if rules.offers(each)}
            seen = self._seen = _Seen(snapshot, rules, by_id, {})
        return seen

    def _shows(self, record: ToolRecord) -> bool:
        """Whether one tool is visible; right after a change it is looked at alone, no call waits for thousands."""
        seen = self._seen
        if seen.snapshot is self._catalog.snapshot and seen.rules is self._rules:
            return record.id in seen.by_id
        return self._rules.offers(record)

    def ids(self) -> Set[int] | None:
        """The visible tools' ids; None where no profile narrows them, that is, all that are searched."""
        return None if self._rules.profile is None else self._now().by_id.keys()

    def by_id(self, tool_id: int) -> ToolRecord | None:
        """The visible tool with this id."""
        record = self._catalog.snapshot.by_id.get(tool_id)
        return record if record is not None and self._shows(record) else None

    def find(self, name: str) -> ToolRecord | None:
        """The tool that a caller means by its canonical or listed name, to the letter."""
        snapshot = self._catalog.snapshot
        key = parse_canonical(name)
        record = (snapshot.by_key.get(key) if key else None) or snapshot.by_listed.get(name)
        return record if record is not None and self._shows(record) else None

    async def require(self, name: str) -> ToolRecord:
        """The tool of that name.

        Raises:
            RefusedError: Its server is switched off.
            ToolNotFoundError: Nothing visible has that name; `data.did_you_mean` holds up to three that are close.
        """
        record = self.find(name)
        if record is not None:
            return record
        self._refuse_disabled(name)
        # Looking for what is close goes through all names.
        look = partial(self._nearest, name[:NAME_LIMIT_CHARS], NEAR_MISSES, allowed=self.ids())
        ids = await to_thread.run_sync(look)
        near = [str(found.key) for found in map(self.by_id, ids) if found is not None]
        hint = f"Did you mean {' or '.join(near)}?" if near else "Use retrieve_tools to find the name."
        raise ToolNotFoundError(
            f"No tool is named {name[:NAME_LIMIT_CHARS]!r}.", hint=hint, data={"did_you_mean": near} if near else None
        )

    def _refuse_disabled(self, name: str) -> None:
        """Passes unless the name leads to a server that is switched off; whether it has such a tool is not said."""
        key = parse_canonical(name)
        record = self._catalog.snapshot.by_listed.get(name)
        server = record.key.server if record is not None else key.server if key else ""
        config = self.servers.get(server)
        if config is not None and config.disabled:
            raise RefusedError(
                f"Server '{server}' is disabled.",
                hint="Ask the user to take 'disabled' out of its entry, or use another server.",
                code="server_disabled",
                data={"state": "disabled"},
            )

    def require_servers(self, names: list[str]) -> None:
        """Passes if every name is a configured server.

        Raises:
            ServerNotFoundError: One is not; the hint names those that are close.
        """
        for name in names:
            if name not in self.servers:
                near = get_close_matches(name, self.servers, n=NEAR_MISSES, cutoff=0.5)
                known = ", ".join(near or sorted(self.servers)[:20]) or "none"
                raise ServerNotFoundError(
                    f"Server {name[:100]!r} is not configured.", hint=f"{'Close' if near else 'Known'}: {known}."
                )


NOT_COVERED = frozenset(ServerState) - {ServerState.READY, ServerState.DISABLED}
"""States in which a server's tools may be missing from an answer or out of date."""
