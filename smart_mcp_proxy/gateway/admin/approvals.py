"""Approvals: what waits for the user, how it differs from the approved state, the decision.

Nothing here is reachable by an agent. That unapproved definitions are not seen is not decided here either: the
catalog's snapshot does not hold them.
"""

import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final, Literal, NamedTuple

import msgspec
from anyio import to_thread

from smart_mcp_proxy.catalog import UNSEALED, ActivityFilter, Ballot, Catalog, Snapshot, Voter
from smart_mcp_proxy.errors import CatalogError, ConflictError, ToolNotFoundError
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.shared.definition_scan import collect_peers, scan_record
from smart_mcp_proxy.models import ToolKey, Withheld, WithheldState
from smart_mcp_proxy.names import IDENTITIES, extract_server_name, parse_canonical, parse_content, shelf, shell_word
from smart_mcp_proxy.policy import scanner
from smart_mcp_proxy.policy.scanner import Finding
from smart_mcp_proxy.policy.scanner.findings import EXCERPT_CHARS, escape_unsafe
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import Activity, get_logger

log = get_logger("approvals")

CLOSED = (
    "the record of approvals was lost with a damaged catalog, so every tool waits for the user: mcpproxy approve --all"
)
SEALED = "What was decided about tools carries this gateway's seal."
UNREADABLE = "what you approved cannot be checked, so every tool waits until the catalog can be used again"

EXPLAINED_KEPT: Final = 500
QUESTIONS_LIMIT: Final = 1_000
"""The latest questions in the activity log that definitions are compared with."""
_LEAST_WORDS: Final = 5
"""Fewer words in a row are in many descriptions by chance."""
_WORD: Final = r"\w+"
_TOKEN = r"\s+|\w+|[^\w\s]"
"""Marks one by one: a sentence behind a full stop is the same addition whatever ends the text."""
_PLAIN_KEY = r"[A-Za-z_][A-Za-z0-9_-]*"
MOST_TOKENS = 2_000
"""Most tokens of a field on each side; comparing takes their product, so longer ones are shown whole, one by one."""
MOST_CHARS = 100_000
"""The same for what is not even taken apart into words, which takes 50 ms for a megabyte (measured)."""

SHOWN_CHARS: Final = 500
ALONE: Final = Voter("local", "local")

Path = tuple[str | int, ...]


class TextRun(NamedTuple):
    """A run of text: in both definitions, only in the approved one, or only in the present one."""

    kind: Literal["same", "removed", "added"]
    text: str


class FieldChange(NamedTuple):
    """Difference in one field of a definition.

    Attributes:
        path: Where it is, for example `inputSchema.properties.note.description`.
        words: Its text as runs, control and invisible characters spelled out.
    """

    path: str
    words: tuple[TextRun, ...]


class PendingApproval(NamedTuple):
    """A tool that waits for its user, as the user reads it.

    Attributes:
        withheld: The tool.
        findings: What the scanner says about its present definition, and which questions of agents it repeats.
        changes: How it differs from what was approved; of a new tool every field.
    """

    withheld: Withheld
    findings: tuple[Finding, ...]
    changes: tuple[FieldChange, ...]


class Decided(NamedTuple):
    """Outcome of an approval: approved tools, moved ones, and those that need more people."""

    approved: tuple[str, ...]
    moved: tuple[str, ...]
    counted: tuple[str, ...] = ()


class AskedQuestions:
    """Questions that agents asked, to be looked for in definitions.

    No ranking over text tells a tool that repeats a question from one that answers it: of such twins of real tools
    91 % were found first. So a person is told before the definition is approved.

    Args:
        questions: As they were asked.
    """

    def __init__(self, questions: Iterable[str]) -> None:
        spoken = {_normalize_words(question): question for question in questions}
        self._questions = {words: text for words, text in spoken.items() if words.count(" ") > _LEAST_WORDS}

    def __bool__(self) -> bool:
        """Whether there are any long enough to look for."""
        return bool(self._questions)

    def findings(self, definition: Mapping[str, Any]) -> tuple[Finding, ...]:
        """At most one finding for each text of a definition."""
        found = []
        for member in ("title", "description") if self._questions else ():
            text = definition.get(member)
            said = _normalize_words(text) if isinstance(text, str) else ""
            if words := next((words for words in self._questions if words in said), None):
                asked = escape_unsafe(self._questions[words])[:EXCERPT_CHARS]
                reason = "It repeats, word for word, a question that an agent asked, and is found first for it."
                found.append(Finding("repeated_question", "note", f"$.{member}", reason, asked))
        return tuple(found)


@dataclass(eq=False, repr=False)
class Approvals:
    """Lists, explains and decides what waits for the user.

    Attributes:
        catalog: Holds approvals and what is withheld.
        servers: The configuration in force.
        follow: Brings what was decided to index, lists and agents.
        recorder: Gets one activity record per decision.
        count_needed: Returns how many different persons approve a definition of a server.
    """

    catalog: Catalog
    servers: Callable[[], Mapping[str, ServerConfig]]
    follow: Callable[[], Awaitable[None]]
    recorder: Recorder[Activity]
    count_needed: Callable[[str], int] = lambda server: 1

    def __post_init__(self) -> None:
        self._peers: tuple[Snapshot, scanner.Peers] | None = None
        """Of the snapshot that was looked at last: of 10,000 tools they take a fifth of a second."""
        self._explained: dict[ToolKey, PendingApproval] = {}
        """Of the same snapshot, as many as are shown together: the scanner takes a millisecond or so for each."""
        self._knows_questions = True

    def problem(self) -> str | None:
        """Why nothing is trusted at present; None in ordinary times."""
        if not self.catalog.is_closed:
            return None
        if not self.catalog.is_sealed:
            return UNSEALED
        return CLOSED if self.catalog.problem is None else UNREADABLE

    def withheld(self, server: str | None = None, *, has_blocked: bool = True) -> list[Withheld]:
        """List what waits or is blocked, of configured servers, by name."""
        servers = self.servers() if server is None else {server} & self.servers().keys()
        found = [
            each for key, each in self.catalog.snapshot.withheld.items() if extract_server_name(key.server) in servers
        ]
        return sorted((each for each in found if has_blocked or each.state is not WithheldState.BLOCKED), key=_name)

    async def explain(self, withheld: Sequence[Withheld]) -> list[PendingApproval]:
        """Tell of each what the scanner finds and what changed."""
        asked = AskedQuestions(await self._questions() if withheld else ())
        return await to_thread.run_sync(self._explain, self.catalog.snapshot, withheld, asked)

    async def show(self, name: str) -> PendingApproval:
        """Explain one withheld tool: its findings and its changes.

        Raises:
            ToolNotFoundError: None of that name waits.
        """
        snapshot = self.catalog.snapshot
        withheld = snapshot.withheld.get(self._key(name))
        if withheld is None:
            raise ToolNotFoundError(f"Tool {name[:200]!r} does not wait for approval.", hint=_LIST_HINT)
        (waiting,) = await self.explain([withheld])
        return waiting

    async def _questions(self) -> list[str]:
        """Look up what agents have asked lately; nothing where the log cannot be looked through."""
        try:
            searches = await self.catalog.activity_page(ActivityFilter(kind="search"), QUESTIONS_LIMIT)
        except CatalogError as exc:
            if self._knows_questions:  # once for as long as it fails
                log.warning("what waits for approval is not compared with what agents asked: %s", exc)
            self._knows_questions = False
            return []
        self._knows_questions = True
        return [search.activity.subject for search in searches]

    def _explain(
        self, snapshot: Snapshot, withheld: Sequence[Withheld], asked: AskedQuestions
    ) -> list[PendingApproval]:
        if not withheld:
            return []
        if self._peers is None or self._peers[0] is not snapshot:
            self._peers, self._explained = (snapshot, collect_peers(snapshot.by_id.values())), {}
        (_, peers), known = self._peers, self._explained
        found = []
        for each in withheld:
            key = each.record.key
            waiting = known.get(key)
            if waiting is None or waiting.withheld is not each:
                waiting = _build_pending_approval(each, peers)
            if len(known) < EXPLAINED_KEPT:
                known[key] = waiting
            if asked:
                more = asked.findings(msgspec.json.decode(each.record.raw))
                waiting = waiting._replace(findings=waiting.findings + more)
            found.append(waiting)
        return found

    async def approve(
        self, seen: Mapping[str, str], by: str, *, reopens: bool = False, lifts: bool = True, voter: Voter = ALONE
    ) -> Decided:
        """Approves exactly the definitions that the user saw.

        Args:
            seen: The full change hash that was looked at, by the tool's name.
            by: Who approves.
            reopens: Whether first lists are trusted again, where the record of approvals was lost.
            lifts: Whether blocks are lifted with it; not by a user who saw none.
            voter: The person who approves, where several have to.

        Raises:
            ToolNotFoundError: A name is not that of a tool.
            ConflictError: None of the tools is what the user saw any more, somebody has blocked it since, or no
                decision counts.
            CatalogError: It could not be stored; then nothing is approved.
        """
        if not self.catalog.is_sealed:
            raise ConflictError(f"Nothing was approved: {UNSEALED}.", hint="Run that, or bring the key back.")
        keys = {self._key(name): hash_ for name, hash_ in seen.items()}
        every = {key: self.count_needed(extract_server_name(key.server)) for key in keys}
        needed = {key: number for key, number in every.items() if number > 1}
        shown = {key: await self._list_shown(key) for key in needed}
        ballot = Ballot(voter, needed, {})
        done = await self.catalog.approve(keys, by, reopens=reopens, lifts=lifts, ballot=ballot if needed else None)
        counted = ballot.counted  # as of the vote: another one at another gateway may have ended the count since
        for key in [*done, *counted]:
            facts = {"approvals": f"{counted.get(key, needed[key])} of {needed[key]}"} if key in needed else {}
            self._note(key, by, "approve", keys[key], **facts, **shown.get(key, {}))
        await self.follow()
        approved, moved = (tuple(sorted(map(str, some))) for some in (done, keys.keys() - done - counted.keys()))
        if moved and not approved:
            blocked = [not lifts and self._is_blocked(key) for key in keys]
            command = f"mcpproxy approve {shell_word(moved[0])}"
            hint = f"Look again: {command} --diff"
            reason = "the definition is no longer the one that was looked at"
            if all(blocked):
                reason = "somebody has blocked this meanwhile"
                hint = f"Look again. To use it all the same: {command}"
            elif any(blocked):
                reason = "changed or blocked meanwhile"
            if not counted:
                raise ConflictError(f"{', '.join(moved[:3])}: {reason}.", hint=hint, data={"moved": list(moved)})
        return Decided(approved, moved, tuple(sorted(map(str, counted))))

    async def close_first_lists(self, server: str) -> None:
        """Have what a server lists first wait, too, if several people approve.

        Raises:
            CatalogError: It could not be stored.
        """
        if server in self.servers() and self.count_needed(server) > 1:
            for place in (server, *(shelf(server, kind) for kind in IDENTITIES)):
                await self.catalog.close_first_list(place)

    async def _list_shown(self, key: ToolKey) -> dict[str, str]:
        """Words for the log about what was shown of a definition: the fields that differ, and the findings."""
        withheld = self.catalog.snapshot.withheld.get(key)
        if withheld is None:
            return {}
        (waiting,) = await self.explain([withheld])
        fields = ", ".join(change.path for change in waiting.changes)[:SHOWN_CHARS]
        return {"shown": f"{fields}; {len(waiting.findings)} findings"}

    async def explain_progress(self) -> Mapping[ToolKey, tuple[str, str]]:
        """Return the hash and words such as `1 of 2, by ann` of each definition that some have approved."""
        found: dict[ToolKey, tuple[str, list[str]]] = {}
        for vote in await self.catalog.find_votes():
            found.setdefault(vote.key, (vote.hash, []))[1].append(vote.voter.name)
        return {
            key: (hash_, f"{len(names)} of {self.count_needed(extract_server_name(key.server))}, by {', '.join(names)}")
            for key, (hash_, names) in found.items()
        }

    async def reseal(self, by: str) -> int:
        """Believe all decisions as they stand, after the key of their seals was lost; return how many.

        Raises:
            ConflictError: They carry this gateway's seal.
            CatalogError: It could not be stored; then nothing is believed.
        """
        if self.catalog.is_sealed:
            raise ConflictError(
                SEALED, hint="Look at what was changed, and at what else waits: mcpproxy approve --list"
            )
        count = await self.catalog.reseal()
        self._record(by, f"{count} decisions", {"decision": "reseal"})
        await self.follow()
        return count

    def _is_blocked(self, key: ToolKey) -> bool:
        withheld = self.catalog.snapshot.withheld.get(key)
        return withheld is not None and withheld.state is WithheldState.BLOCKED

    async def block(self, name: str, by: str) -> str:
        """Block a tool, whatever its definition becomes, until approved or unblocked; its full name.

        Raises:
            ToolNotFoundError: No listed tool has that name.
            CatalogError: It could not be stored; then nothing is blocked.
        """
        key = self._key(name)
        await self.catalog.block(key, by)
        self._note(key, by, "block")
        await self.follow()
        return str(key)

    async def unblock(self, name: str, by: str) -> str:
        """Lift a block and return the tool's full name.

        A definition that was approved before is approved again, any other waits.

        Raises:
            ToolNotFoundError: No blocked tool has that name.
            CatalogError: It could not be stored; then it stays blocked.
        """
        key = self._key(name)
        if not await self.catalog.unblock(key, by):
            raise ToolNotFoundError(f"Tool '{key}' is not blocked.", hint=_LIST_HINT)
        self._note(key, by, "unblock")
        await self.follow()
        return str(key)

    def _key(self, name: str) -> ToolKey:
        """The tool of that canonical or listed name, withheld or not."""
        snapshot = self.catalog.snapshot
        for key in (parse_canonical(name), parse_content(name)):
            if key is not None and (key in snapshot.by_key or key in snapshot.withheld):
                return key
        if (record := snapshot.by_listed.get(name)) is not None:
            return record.key
        for each in snapshot.withheld.values():
            if each.record.listed_name == name:
                return each.record.key
        raise ToolNotFoundError(f"No server lists a tool {name[:200]!r}.", hint=_LIST_HINT)

    def _note(self, key: ToolKey, by: str, decision: str, hash_: str = "", **facts: str) -> None:
        detail = {"decision": decision} | ({"hash": hash_} if hash_ else {}) | facts
        self._record(by, str(key), detail, extract_server_name(key.server), key.tool)

    def _record(self, by: str, subject: str, detail: dict[str, str], server: str = "", tool: str = "") -> None:
        self.recorder.record(
            Activity(
                kind="approval",
                principal=by,
                subject=subject,
                outcome="ok",
                duration_ms=0.0,
                at_s=time.time(),
                detail=detail,
                server=server,
                tool=tool,
            )
        )


_LIST_HINT = "See what waits with: mcpproxy approve --list"


def _name(each: Withheld) -> tuple[bool, ToolKey]:
    return each.state is WithheldState.BLOCKED, each.record.key


def _build_pending_approval(withheld: Withheld, peers: "scanner.Peers") -> PendingApproval:
    current = msgspec.json.decode(withheld.record.raw)
    approved = None if withheld.approved is None else msgspec.json.decode(withheld.approved)
    return PendingApproval(withheld, scan_record(withheld.record, peers), differences(approved, current))


def _normalize_words(text: str) -> str:
    """The words of a text in lower case, with a space around each."""
    return f" {' '.join(re.findall(_WORD, text.lower()))} "


def differences(approved: Mapping[str, Any] | None, current: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """List the fields that differ between two definitions; of a new one every field.

    Definitions with another change hash have at least one.
    """
    old = {} if approved is None else dict(_leaves(approved, ()))
    new = dict(_leaves(current, ()))
    changed = (path for path in dict.fromkeys((*new, *old)) if old.get(path) != new.get(path))
    return tuple(FieldChange(_format_path(path), _diff_words(old.get(path, ""), new.get(path, ""))) for path in changed)


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield every text, number and empty object of a JSON value by its path.

    Written so that `1`, `1.0` and `"1"` differ.
    """
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for place, inner in enumerate(value):
            yield from _leaves(inner, (*path, place))
    else:
        yield path, f'"{value}"' if isinstance(value, str) else json.dumps(value)


def _format_path(path: Path) -> str:
    text = ""
    for step in path:
        if isinstance(step, str) and re.fullmatch(_PLAIN_KEY, step):
            text += f".{step}"
        else:
            text += f"[{escape_unsafe(json.dumps(step, ensure_ascii=False))}]"
    return text.removeprefix(".")


def _diff_words(old: str, new: str) -> tuple[TextRun, ...]:
    if max(len(old), len(new)) > MOST_CHARS:
        return _runs(("removed", [old]), ("added", [new]))
    before, after = re.findall(_TOKEN, old), re.findall(_TOKEN, new)
    if max(len(before), len(after)) > MOST_TOKENS:
        return _runs(("removed", [old]), ("added", [new]))
    runs: list[tuple[Literal["same", "removed", "added"], list[str]]] = []
    for kind, start, end, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            runs.append(("same", before[start:end]))
        else:
            runs += [("removed", before[start:end]), ("added", after[first:last])]
    return _runs(*runs)


def _runs(*runs: tuple[Literal["same", "removed", "added"], list[str]]) -> tuple[TextRun, ...]:
    return tuple(TextRun(kind, escape_unsafe("".join(words))) for kind, words in runs if any(words))
