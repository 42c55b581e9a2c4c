"""The view of tools: which may be seen and called, and under which names."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Set
from copy import copy
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from anyio import to_thread

from smart_mcp_proxy import policy
from smart_mcp_proxy.catalog import Catalog, Snapshot
from smart_mcp_proxy.errors import QuarantinedError, RefusedError, ServerNotFoundError, ToolNotFoundError, UpstreamError
from smart_mcp_proxy.gateway.shared.app_pages import is_for_apps_alone
from smart_mcp_proxy.gateway.shared.refusals import server_off, tool_withheld
from smart_mcp_proxy.gateway.visibility.analysis import with_analysis
from smart_mcp_proxy.gateway.visibility.visibility_rules import ListedTo, Rules
from smart_mcp_proxy.models import Reach, ServerState, ToolRecord, Withheld, WithheldState
from smart_mcp_proxy.names import build_listed_prefix, parse_canonical, visible_name
from smart_mcp_proxy.proxying.query import ambiguous
from smart_mcp_proxy.servers import Profile, ServerConfig

T = TypeVar("T")

NEAR_MISSES = 3
NAME_LIMIT_CHARS = 200
"""Characters shown, compared or written down of a name that does not exist."""


class Nearest(Protocol):
    """Finds names close to one that does not exist."""

    def __call__(self, name: str, n: int, *, allowed: Set[int] | None) -> list[int]:
        """Ids of up to `n` tools, best first; of `allowed` only, if that is given."""


class _Seen(NamedTuple):
    """The visible records of one state of catalog and configuration."""

    snapshot: Snapshot
    rules: Rules
    by_id: Mapping[int, ToolRecord]
    ids: Set[int]
    by_server: dict[str, tuple[ToolRecord, ...]]
    """Filled as it is asked for."""
    refusals: dict[str, QuarantinedError]
    """With their analysis, by message; filled as they are made."""


class _Looked(NamedTuple):
    """Tools of one state of catalog and configuration that were looked at alone."""

    snapshot: Snapshot
    rules: Rules
    shown: dict[int, bool]
    """By id, filled as it is asked for."""
    found: dict[str, ToolRecord]
    """By the name that was asked for; what is there and shown, no more: no caller can make it grow."""


class CatalogView:
    """The tools of the catalog that this gateway's configuration lets a caller see.

    Args:
        catalog: Holds what was listed, also by servers that are not configured here.
        servers: The current configuration, by name.
        nearest: Names close to a given one, best first, as ids; of these tools only, if they are given.
        profile: The part of them that is seen; None for all.
        absence: Tells why a server's tools are not known, to a person, or to nobody in particular for an empty name;
            None where all that is known is in the catalog.
        why_left_out: Tells why a server's tool of that name cannot be used; None where it does not list one.
        is_hinting: Whether tools that are listed carry hints for a client's own tool search.
    """

    def __init__(
        self,
        catalog: Catalog,
        servers: Mapping[str, ServerConfig],
        nearest: Nearest,
        profile: Profile | None = None,
        absence: Callable[[str, str], Awaitable[UpstreamError | None]] | None = None,
        why_left_out: Callable[[str, str], UpstreamError | None] = lambda server, tool: None,
        *,
        is_hinting: bool = False,
    ) -> None:
        self._catalog = catalog
        self._nearest = nearest
        self._absence = absence
        self._why_left_out = why_left_out
        self.is_hinting = is_hinting
        self.person = ""
        """Who looks; empty for nobody in particular."""
        self._rules = Rules({}, None)
        self.reconfigure(servers, profile)
        self._seen = _Seen(Snapshot(), self._rules, {}, frozenset(), {}, {})
        self._looked = _Looked(self._seen.snapshot, self._rules, {}, {})
        self._made: dict[Hashable, Any] = {}
        self._per_client: tuple[object, frozenset[str]] = (None, frozenset())

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returned first for `key`; kept as long as this object lives.

        A weak dictionary of what refers to its own key would keep both for ever.
        """
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def sees(self, record: ToolRecord) -> bool:
        """Whether this tool may be searched, described and called here."""
        return self.rules.offers(record)

    @property
    def servers(self) -> Mapping[str, ServerConfig]:
        """The configured servers, as far as they are seen here, by name."""
        return self.rules.servers

    @property
    def per_client(self) -> frozenset[str]:
        """The servers seen here that know each client; the same object until the configuration changes."""
        rules = self.rules
        if self._per_client[0] is not rules:
            names = frozenset(name for name, each in rules.servers.items() if each.connection == "per_client")
            self._per_client = (rules, names)
        return self._per_client[1]

    def knows_clients(self) -> bool:
        """Whether any server seen here knows each client."""
        return bool(self.per_client)

    def sees_content(self, server: str, name: str) -> bool:
        """Return whether a server's prompt, resource or template may be seen and used here."""
        return self.rules.offers_content(server, name)

    @property
    def rules(self) -> Rules:
        """The rules as of now; the same object until the configuration changes."""
        return self._rules

    def reconfigure(self, servers: Mapping[str, ServerConfig], profile: Profile | None = None) -> None:
        """Goes by another configuration from now on."""
        if profile is not None:  # one with tools alone leaves out servers as well: even their names are not for it
            servers = {name: config for name, config in servers.items() if profile.may_hold(name)}
        self._rules = Rules(servers, profile)

    def state(self) -> object:
        """The same object until catalog or configuration change."""
        return self._now()

    @property
    def is_pinning(self) -> bool:
        """Whether the configuration always lists some tool."""
        rules = self.rules
        return bool(rules.profile and rules.profile.pin) or any(config.pin for config in rules.servers.values())

    def is_pinned(self, record: ToolRecord) -> bool:
        """Return whether an entry or the profile pins this tool, in any form of its name."""
        server, tool = record.key
        full = {str(record.key), record.listed_name}
        profile = self.rules.profile
        return not {tool, *full}.isdisjoint(self.servers[server].pin) or (
            profile is not None and not full.isdisjoint(profile.pin)
        )

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
        """Compute what is visible once per state of catalog and configuration, in any thread."""
        seen, snapshot, rules = self._seen, self._catalog.snapshot, self.rules
        if seen.snapshot is not snapshot or seen.rules is not rules:
            offered = {id_: each for id_, each in snapshot.by_id.items() if rules.offers(each)}
            by_id = offered if len(offered) < len(snapshot.by_id) else snapshot.by_id  # held in memory anyway
            seen = self._seen = _Seen(snapshot, rules, by_id, by_id.keys(), {}, {})
        return seen

    def _shows(self, snapshot: Snapshot, record: ToolRecord) -> bool:
        """Return whether a tool of `snapshot` is visible; computed alone, once per state."""
        seen, looked = self._seen, self._look(snapshot)
        if seen.snapshot is snapshot and seen.rules is looked.rules:
            return record.id in seen.by_id
        shown = looked.shown.get(record.id)
        if shown is None:
            shown = looked.shown[record.id] = looked.rules.offers(record)
        return shown

    def _look(self, snapshot: Snapshot) -> _Looked:
        """Results of look-ups so far in the present state."""
        looked, rules = self._looked, self.rules
        if looked.snapshot is not snapshot or looked.rules is not rules:
            looked = self._looked = _Looked(snapshot, rules, {}, {})
        return looked

    def ids(self) -> Set[int] | None:
        """The visible tools' ids; None where nothing narrows them, that is, all that are searched.

        The same object until something changes.
        """
        rules = self.rules
        return None if rules.profile is None and not rules.is_narrowed else self._now().ids

    def by_id(self, tool_id: int) -> ToolRecord | None:
        """The visible tool with this id."""
        snapshot = self._catalog.snapshot
        record = snapshot.by_id.get(tool_id)
        return record if record is not None and self._shows(snapshot, record) else None

    def find(self, name: str) -> ToolRecord | None:
        """The tool that a caller means by its canonical or listed name, to the letter."""
        snapshot = self._catalog.snapshot
        found = self._look(snapshot).found
        record = found.get(name)
        if record is None:
            key = parse_canonical(name)
            record = (snapshot.by_key.get(key) if key else None) or snapshot.by_listed.get(name)
            if record is None or not self._shows(snapshot, record):
                return None
            found[name] = record
        return record

    async def require(self, name: str) -> ToolRecord:
        """The tool of that name; one of a server that is still connecting is waited for briefly.

        Raises:
            QuarantinedError: The tool or its server waits for the user; with an analysis of what waits.
            RefusedError: Its server is disabled, or the caller's token does not reach so far.
            UpstreamError: Its server's entry cannot be used, or it is not ready and has never listed any tools.
            RequestError: It says no server, and several have a tool of that name.
            ToolNotFoundError: Nothing visible has that name; `data.did_you_mean` holds up to three that are close.
        """
        try:
            return await self._require_tool(name)
        except QuarantinedError as refusal:
            raise await self.add_analysis(refusal) from None

    async def add_analysis(self, refusal: QuarantinedError) -> QuarantinedError:
        """The refusal of a tool or server with what the scanner finds in what waits, once per state."""
        seen = self._now()
        if refusal.message not in seen.refusals:
            work = partial(with_analysis, refusal, seen.snapshot, seen.rules, seen.by_id.values())
            seen.refusals[refusal.message] = await to_thread.run_sync(work)
        return copy(seen.refusals[refusal.message])

    async def _require_tool(self, name: str) -> ToolRecord:
        absent: UpstreamError | None = None
        if (record := self._find_or_refuse(name)) is not None:
            return record
        if self._absence is not None and (server := self._server_meant(name)) is not None:
            absent = await self._absence(server, self.person)
            if (record := self._find_or_refuse(name)) is not None:  # listed meanwhile
                return record
            is_unknown = self.rules.is_personal(server) or not self._catalog.snapshot.collect_server_tools(server)
            if absent is not None and is_unknown:
                raise absent
        same = await self.find_by_own_name(name)
        if len(same) > 1:
            raise ambiguous("tool", name, [(each.key.server, str(each.key)) for each in same])
        near = [str(each.key) for each in same]
        if not near:  # looking for what is close goes through all names
            look = partial(self._nearest, name[:NAME_LIMIT_CHARS], NEAR_MISSES, allowed=self.ids())
            near = [str(found.key) for found in map(self.by_id, await to_thread.run_sync(look)) if found is not None]
        hint = f"Did you mean {' or '.join(near)}?" if near else "Use retrieve_tools to find the name."
        if absent is not None:
            hint += f" It is not among the tools of its last session. {absent.message}"
        raise ToolNotFoundError(
            f"No tool is named {name[:NAME_LIMIT_CHARS]!r}.", hint=hint, data={"did_you_mean": near} if near else None
        )

    async def find_by_own_name(self, name: str) -> list[ToolRecord]:
        """Find the visible tools that their servers call so; none if the name says a server."""
        try:
            self._refuse_kept_back(name)
        except (RefusedError, UpstreamError):
            return []
        records = [] if self._server_meant(name) is not None else self.records()
        found = await to_thread.run_sync(lambda: [record for record in records if record.key.tool == name])
        return sorted((each for each in found if not is_for_apps_alone(each.raw)), key=lambda each: each.key)

    async def absent(self, server: str) -> UpstreamError | None:
        """Why a server's present tools are not known, after a short wait; None if they are."""
        return None if self._absence is None else await self._absence(server, self.person)

    def find_refusal(self, name: str) -> RefusedError | UpstreamError | None:
        """Return the refusal of that tool or its server, without an analysis; None if there is none."""
        if len(name) > NAME_LIMIT_CHARS or not name.strip() or " " in name:  # words, as nearly always
            return None
        try:
            self._refuse_kept_back(name)
        except (RefusedError, UpstreamError) as error:
            return error
        return None

    def _find_or_refuse(self, name: str) -> ToolRecord | None:
        """The tool of that name, None if none is known; raises where it is kept back."""
        record = self.find(name)
        if record is None:
            self._refuse_kept_back(name)
            self._refuse_access(name)
        return record

    def _server_meant(self, name: str) -> str | None:
        """The configured server that would have a tool of that name, if it were listed and shown here."""
        rules, key = self.rules, parse_canonical(name)
        if key is not None:
            return key.server if rules.allows(*key) else None
        begun = [(prefix, server) for server in rules.servers if name.startswith(prefix := build_listed_prefix(server))]
        fitting = [(prefix, server) for prefix, server in begun if rules.allows(server, name.removeprefix(prefix))]
        return max(fitting)[1] if fitting else None

    def _refuse_kept_back(self, name: str) -> None:
        """Raise if the name is of a tool that is withheld or left out, or of a server that is off or waits.

        Whether a server that offers nothing at present has such a tool is not said.
        """
        key = parse_canonical(name)
        withheld = self._withheld_as(name)
        record = withheld.record if withheld is not None else self._catalog.snapshot.by_listed.get(name)
        server = record.key.server if record is not None else key.server if key else self._server_meant(name) or ""
        config = self.servers.get(server) or self._unusable_meant(name)
        if config is not None and (off := server_off(config)) is not None:
            raise off
        if withheld is not None and self.rules.may_know(*withheld.record.key):
            raise tool_withheld(withheld.record.key, withheld.state)
        if record is None and (meant := self._server_meant(name)) is not None:
            tool = key.tool if key is not None else name.removeprefix(build_listed_prefix(meant))
            if (left_out := self._why_left_out(meant, tool)) is not None:
                raise left_out

    def _unusable_meant(self, name: str) -> ServerConfig | None:
        """The server that a tool's name begins with, where no tool can have one of its name."""
        first = visible_name(name.partition(":")[0])
        refused = (config for config in self.servers.values() if config.refusal is not None)
        return next((each for each in refused if each.name == first or name.startswith(f"{each.name}:")), None)

    def _withheld_as(self, name: str) -> Withheld | None:
        """The withheld tool of that canonical or listed name, to the letter."""
        withheld = self._catalog.snapshot.withheld
        key = parse_canonical(name)
        if key is not None and key in withheld:
            return withheld[key]
        return next((each for each in withheld.values() if each.record.listed_name == name), None)

    def count_waiting(self) -> Mapping[str, int]:
        """Count the tools that wait for the user, by server; without blocked ones."""
        rules, withheld = self.rules, self._catalog.snapshot.withheld.values()
        open_ = (each for each in withheld if each.state is not WithheldState.BLOCKED)
        return Counter(each.record.key.server for each in open_ if rules.offers(each.record)) if withheld else {}

    def _refuse_access(self, name: str) -> None:
        """Passes unless the name is a tool's that the caller may know of, and does more than its token allows."""
        snapshot, rules = self._catalog.snapshot, self.rules
        key = parse_canonical(name)
        record = (snapshot.by_key.get(key) if key else None) or snapshot.by_listed.get(name)
        if record is None or not rules.may_know(*record.key):
            return
        asked, access = policy.call_with(record.annotations), rules.access
        if access != "destructive":
            raise RefusedError(
                f"Tool '{record.key}' asks for {asked} access, and your token allows {access}.",
                hint="Use another tool, or ask the operator of this gateway for a token that allows it.",
                code="access_denied",
                data={"access": access, "needed": asked},
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


class NarrowedView(CatalogView):
    """View of the tools within a principal's reach; it follows their configuration by itself.

    Args:
        whole: The tools of the place where it came in.
        reach: How far it reaches.
        profile_of: A configured profile by name; None where there is none (any more).
        listed_to: What was listed to a person; the same object until that changes.
    """

    def __init__(
        self,
        whole: CatalogView,
        reach: Reach,
        profile_of: Callable[[str], Profile | None],
        listed_to: Callable[[str], ListedTo] = lambda person: {},
    ) -> None:
        super().__init__(whole._catalog, {}, whole._nearest, is_hinting=whole.is_hinting)
        self._absence, self._why_left_out = whole._absence, whole._why_left_out
        self._whole = whole
        self._reach = reach
        self._profile_of = profile_of
        self._listed_to = listed_to
        self.person = reach.person or whole.person
        self._narrowed_from: tuple[Rules, ListedTo | None] = self._rules, None

    @property
    def rules(self) -> Rules:
        """The rules of the whole view as of now, narrowed."""
        theirs, listed = self._whole.rules, self._listed_to(self.person) if self.person else None
        if theirs is not self._narrowed_from[0] or listed is not self._narrowed_from[1]:
            held_to = None if self._reach.profile is None else self._profile_of(self._reach.profile)
            self._rules = theirs.narrow_to_reach(self._reach, held_to, listed)
            self._narrowed_from = theirs, listed
        return self._rules


NOT_COVERED = frozenset(ServerState) - {ServerState.READY, ServerState.DISABLED}
"""States in which a server's tools may be missing from an answer or out of date."""
