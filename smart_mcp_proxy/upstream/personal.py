"""Supervisor of a server at which each person has a connection of their own."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Final, NoReturn

from msgspec.structs import replace

from smart_mcp_proxy.errors import RateLimitedError, UpstreamAuthError
from smart_mcp_proxy.models import ContentKind, ServerState, ServerStatus
from smart_mcp_proxy.names import login_hint
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import spawn
from smart_mcp_proxy.upstream.listing import ToolListing
from smart_mcp_proxy.upstream.supervisor import Upstream

_FULL_RETRY_S: Final = 1.0
"""Pause for a person where the connections of all others are in use."""


@dataclass(eq=False, repr=False)
class PersonalUpstream(Upstream):
    """Connections of each person to one server, which has none for all.

    A person's connection is made with their first request, and makes room for another person's when it is idle.

    Attributes:
        unlisted: People whose last list failed, by kind; each of them has it tried again by whatever they ask for.
    """

    is_personal = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.own = None  # a person's clients share theirs
        self._people: dict[str, Upstream] = {}
        self._used_s: dict[str, float] = {}
        self._is_started = False
        self.unlisted: dict[str, set[str]] = {}
        given = ("environ", "on_tools_changed", "open_session", "start_gate", "clock", "rng", "on_contents_changed")
        self._new: Callable[..., Upstream] = partial(Upstream, **{name: getattr(self, name) for name in given})

    def __repr__(self) -> str:
        return f"<PersonalUpstream {self.config.name}, {len(self._people)} people>"

    @property
    def is_ready(self) -> bool:
        """Whether anybody's connection is."""
        return any(each.is_ready for each in self._people.values())

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Capabilities that the server declared to those who are connected."""
        return {key: fact for each in self._people.values() for key, fact in each.capabilities.items()}

    def list_connected(self) -> Iterator[tuple[str, Upstream]]:
        """The people who are connected, each with their connection."""
        return iter([(person, each) for person, each in self._people.items() if each.is_ready])

    def find(self, person: str) -> Upstream | None:
        """Return a person's connection; None where nobody has asked for it."""
        return self._people.get(person)

    def use(self, person: str) -> Upstream:
        """Return a person's connection, begun if there is none.

        Raises:
            RateLimitedError: As many people as may have one are using theirs.
        """
        upstream = self._people.get(person)
        now_s = self.clock()
        self._used_s[person] = now_s
        if upstream is None:
            self._make_room(now_s)
            config = replace(self.config, person=person)
            upstream = self._people[person] = self._new(config, on_change=self._note_change)
            if self._is_started:
                spawn(upstream.start(), f"upstream-{self.name} of a person")
        for kind in [kind for kind, people in self.unlisted.items() if person in people]:
            self._tell(self.on_tools_changed if kind == "tools" else self.on_contents_changed, self.name)
        return upstream

    def _make_room(self, now_s: float) -> None:
        """End the connections that were idle for long, and the one idle longest where there are too many."""
        limits = self.config.limits
        idle = sorted(
            ((self._used_s[person], person) for person, each in self._people.items() if not each.is_busy),
            key=itemgetter(0),
        )
        surplus = len(self._people) + 1 - limits.client_connections
        over = [person for used_s, person in idle if now_s - used_s >= limits.client_idle_s]
        over += [person for _, person in idle if person not in over][: max(0, surplus - len(over))]
        if surplus > len(over):
            raise RateLimitedError(
                f"Server '{self.name}' has connections of {len(self._people)} people in use, its limit.",
                hint="Try again when one of them is done. "
                "The user can raise 'client_connections' under 'limits' in the server's entry.",
                retry_after_s=_FULL_RETRY_S,
                code="too_many_connections",
            )
        for person in over:
            del self._used_s[person]
            spawn(self._people.pop(person).stop(), f"upstream-{self.name} of an idle person")

    def _note_change(self, _: ServerStatus) -> None:
        if self._is_started:
            self._status = self._sum_up()
            self._tell(self.on_change, self._status)

    def _sum_up(self) -> ServerStatus:
        """The state of the server for people who look at it as a whole."""
        if self.is_ready:
            return replace(self._status, state=ServerState.READY, error="", hint="")
        return replace(
            self._status,
            state=ServerState.NEEDS_AUTH,
            error=f"At server '{self.name}' each person has a sign-in of their own, and nobody is connected.",
            hint=login_hint(self.name),
        )

    # --- the whole of it

    async def start(self) -> None:
        """Let people have connections."""
        if self.config.is_off:
            await super().start()
        elif not self._is_started:
            self._is_started = True
            self._settled.set()
            for upstream in tuple(self._people.values()):
                await upstream.start()
            self._note_change(self._status)

    async def stop(self) -> None:
        """End all connections; calls under way fail."""
        self._is_started = False
        people, self._people = self._people, {}
        self._used_s.clear()
        for upstream in people.values():
            await upstream.stop()
        if not self.config.is_off:
            self._status = replace(self._status, state=ServerState.DISCONNECTED, error="", hint="")
            self._settled.clear()
            self._tell(self.on_change, self._status)

    def limit(self, config: ServerConfig) -> None:
        """Take other limits from the next request on."""
        self.config = config
        for person, upstream in self._people.items():
            upstream.limit(replace(config, person=person))

    def retry(self) -> None:
        """Bring everybody's next try forward to now."""
        for upstream in self._people.values():
            upstream.retry()

    async def ready(self, timeout_s: float, *, may_retry: bool = True) -> bool:
        """Whether anybody is connected; nothing is waited for."""
        return self.is_ready

    def not_ready(self, *, may_retry: bool = True) -> UpstreamAuthError:
        """Error for what is asked of the server on nobody's behalf."""
        return UpstreamAuthError(
            f"Server '{self.name}' is asked for nothing but on behalf of a person, on a connection of theirs.",
            hint="Ask for it over MCP or REST, as somebody who is signed in to it.",
            data={"state": str(ServerState.NEEDS_AUTH)},
        )

    async def request(self, method: str, params: Mapping[str, Any], **options: Any) -> RawResult:
        """Refuse: nobody's connection may carry what is asked on nobody's behalf."""
        self._refuse()

    async def list_contents(self, kind: ContentKind) -> ToolListing:
        """Refuse; each person is listed something of their own."""
        self._refuse()

    async def list_tools(self) -> ToolListing:
        """Refuse; each person is listed something of their own."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise self.not_ready()
