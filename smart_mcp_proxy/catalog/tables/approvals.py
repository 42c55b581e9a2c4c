"""The SQL of approvals: which definitions were agreed to, and what a server's first list is worth.

The rule that nothing else is served stands where tools are read (`following.follow`): a tool is visible while its row
and its approval hold the same full hash. Here is only who may write an approval: a server's first list, its policy
through a `Review`, or the user.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Table, bindparam, delete, insert, literal, select, union_all

from smart_mcp_proxy.catalog.recovery.rollback_guard import CLOSED_KEY
from smart_mcp_proxy.catalog.recovery.seals import Seals, has_hash
from smart_mcp_proxy.catalog.tables.following import ApprovalStanding
from smart_mcp_proxy.catalog.tables.prepared_tools import PreparedTool, Wanted
from smart_mcp_proxy.catalog.tables.schema import approval_votes, approvals, baselines, former_approvals, meta
from smart_mcp_proxy.catalog.tables.schema import tools as tools_table
from smart_mcp_proxy.catalog.tables.sealed import note_trust, read_trust
from smart_mcp_proxy.catalog.tables.tools import SEALED, mark_changed
from smart_mcp_proxy.catalog.tables.upsert import parts, replace_columns, upsert
from smart_mcp_proxy.models import Review, Submission, ToolKey

if TYPE_CHECKING:
    from sqlalchemy.dialects.sqlite import Insert

BY_FIRST_LIST = "first list"
BY_POLICY = "policy"
BY_MEMORY = "memory of a running gateway"
BY_EARLIER_APPROVAL = "earlier approval"

_FORMER_KEPT = 16
"""Earlier approvals of a tool whose definition has several texts, or whose server is used in several versions."""

# Made once: to put a statement together takes longer than to run it.
_HEARD, _CLOSED = "heard", "closed"
_STANDING = union_all(
    select(literal(_HEARD)).where(baselines.c.server_name == bindparam("server")),
    select(literal(_CLOSED)).where(meta.c.key == CLOSED_KEY),
)
_DECIDED = select(approvals.c.name, approvals.c.state, approvals.c.hash, approvals.c.seal).where(
    approvals.c.server_name == bindparam("server")
)


_FORMER = former_approvals.c
_OF_ONE = (_FORMER.server_name == bindparam("server")) & (_FORMER.name == bindparam("tool"))
_LATEST = select(_FORMER.hash).where(_OF_ONE).order_by(_FORMER.at_s.desc(), _FORMER.hash).limit(_FORMER_KEPT)
_FORGET = delete(former_approvals).where(_OF_ONE, _FORMER.hash.not_in(_LATEST))


class Voter(NamedTuple):
    """A person who approves, and how they are called."""

    person: str
    name: str


class Ballot(NamedTuple):
    """Vote of a person, and what it comes to.

    Attributes:
        voter: The person who approves.
        needed: How many different persons each tool needs: one where it is not named.
        counted: How many have approved by now what needs more of them; filled in with the vote.
    """

    voter: Voter
    needed: Mapping[ToolKey, int]
    counted: dict[ToolKey, int]


class Vote(NamedTuple):
    """An approval of a definition that needs more of them."""

    key: ToolKey
    hash: str
    voter: Voter


class Settlement(msgspec.Struct, frozen=True):
    """The approvals that a list brings about; false if there is nothing to write.

    Attributes:
        granted: Definitions that are approved, by who approves them.
        is_first: Whether the server was never heard before.
    """

    granted: Mapping[str, Collection[PreparedTool]]
    is_first: bool

    def __bool__(self) -> bool:
        return any(self.granted.values()) or self.is_first


def settlement(connection: Connection, server: str, wanted: Wanted, review: Review | None, seals: Seals) -> Settlement:
    """Decide which definitions of a server's list become approved with it.

    Of a first list those that were never decided on, except what the server's policy holds back; of a later one those
    that were approved before, as in A, B, A, and those that the policy approves; of one that is heard after the record
    was lost none. What the user blocked stays blocked, and what was decided otherwise than by a gateway waits.

    Args:
        connection: In a transaction.
        server: Configured name.
        wanted: Its whole list.
        review: The server's policy; None where only the user approves.
        seals: Of the store.
    """
    standing, trust = connection.scalars(_STANDING, {"server": server}).all(), read_trust(connection, seals)
    is_heard = _HEARD in standing or (trust is not None and server in trust.heard)
    rows = connection.execute(_DECIDED, {"server": server}).all() if wanted else ()
    decided = {name: hash_ for name, _, hash_, _ in rows}
    shut = {key.tool for key in (trust.blocked if trust is not None else ()) if key.server == server}
    shut |= {
        name
        for name, state, hash_, seal in rows
        if state == "blocked" or not seals.fits(seal, "decision", server, name, state, hash_)
    }
    open_ = [tool for name, tool in wanted.items() if name not in shut and decided.get(name) != tool.hash]
    if _CLOSED in standing or trust is None:
        return Settlement({}, not is_heard)
    if not is_heard:
        new = (tool for tool in open_ if tool.key.tool not in decided)
        granted = [tool for tool in new if review is None or review(_submission(tool, None))]
        return Settlement({BY_FIRST_LIST: granted}, True)
    changed = [tool for tool in open_ if tool.key.tool in decided]
    known = _read_former_hashes(connection, server, changed, seals)
    again = [tool for tool in changed if (tool.key.tool, tool.hash) in known]
    if review is None:
        return Settlement({BY_EARLIER_APPROVAL: again}, False)
    approved = _definitions(connection, server, [tool.key.tool for tool in changed])
    altered = {name for name, text in approved.items() if not has_hash(server, text, decided[name])}
    others = [tool for tool in open_ if (tool.key.tool, tool.hash) not in known and tool.key.tool not in altered]
    granted = [tool for tool in others if review(_submission(tool, approved.get(tool.key.tool)))]
    return Settlement({BY_EARLIER_APPROVAL: again, BY_POLICY: granted}, False)


def _read_former_hashes(
    connection: Connection, server: str, changed: Collection[PreparedTool], seals: Seals
) -> frozenset[tuple[str, str]]:
    """Name and hash of every definition that was approved before of these tools of a server."""
    found: list[tuple[str, str]] = []
    for some in parts(tool.key.tool for tool in changed):
        rows = select(_FORMER.name, _FORMER.hash, _FORMER.seal)
        rows = rows.where(_FORMER.server_name == server, _FORMER.name.in_(some))
        for name, hash_, seal in connection.execute(rows):
            if seals.fits(seal, "former", server, name, hash_):
                found.append((name, hash_))
    return frozenset(found)


def _definitions(connection: Connection, server: str, names: Collection[str]) -> dict[str, str]:
    """The definitions that were approved of these tools of a server, by name."""
    found: dict[str, str] = {}
    for some in parts(names):
        is_one = (approvals.c.server_name == server) & approvals.c.name.in_(some)
        rows = select(approvals.c.name, approvals.c.definition).where(is_one, approvals.c.definition.is_not(None))
        found.update(connection.execute(rows).all())
    return found


def _submission(tool: PreparedTool, approved: str | None) -> Submission:
    before = None if approved is None else json.loads(approved)
    return Submission(tool.key, tool.hash, json.loads(tool.raw), before)


def settle(
    connection: Connection,
    server: str,
    wanted: Wanted,
    review: Review | None,
    seals: Seals,
    *,
    written: Collection[str],
    now_s: float,
) -> None:
    """Writes the approvals that a server's list brings about, in the transaction that stores the list.

    Args:
        connection: In a transaction that writes.
        server: Configured name.
        wanted: Its whole list.
        review: The server's policy; None where only the user approves.
        seals: Of the store.
        written: Names of the tools whose rows the list has changed.
        now_s: Seconds since the epoch.
    """
    made = settlement(connection, server, wanted, review, seals)
    for by, granted in made.granted.items():
        _write(connection, ((tool.key, tool.hash, tool.definition) for tool in granted), by, now_s, seals)
        mark_changed(connection, [tool.key for tool in granted if tool.key.tool not in written])
    if made.is_first:
        _note_heard(connection, [server], now_s, seals)


def approve(
    connection: Connection,
    seen: Mapping[ToolKey, str],
    by: str,
    now_s: float,
    seals: Seals,
    *,
    reopens: bool = False,
    lifts: bool = True,
    ballot: Ballot | None = None,
) -> frozenset[ToolKey]:
    """Approves listed definitions in the user's name; returns those that still were what the user saw.

    Those that need more persons than have approved them yet are not among them.

    Args:
        connection: In a transaction that writes.
        seen: The change hash that the user saw, by tool.
        by: Who approves.
        now_s: Seconds since the epoch.
        seals: Of the store; a definition without one of its own waits for its server to list it again.
        reopens: Whether first lists are trusted again from now on.
        lifts: Whether a block is lifted with it; else a tool that somebody has blocked meanwhile stays so.
        ballot: The person who approves, and how many have to; None where nobody counts persons.
    """
    found: list[tuple[ToolKey, str, str]] = []
    listed = tools_table.c
    for server, some in _group_by_server(seen):
        is_one = (listed.server_name == server) & listed.name.in_(some)
        rows = connection.execute(select(listed.seal, *SEALED).where(is_one)).all()
        kept = frozenset() if lifts else _read_blocked_names(connection, server, some)
        for seal, *sealed, text in rows:
            _, name, _, hash_, _ = sealed
            is_meant = seen[key := ToolKey(server, name)] == hash_ and name not in kept
            if is_meant and seals.fits(seal, "tool", *sealed, text=text):
                found.append((key, hash_, text))
    if ballot is not None:
        found = count_votes(connection, found, ballot, now_s, seals)
    _write(connection, found, by, now_s, seals)
    if reopens:
        connection.execute(delete(meta).where(meta.c.key == CLOSED_KEY))
    approved = frozenset(key for key, _, _ in found)
    note_trust(connection, seals, lifted=approved)
    mark_changed(connection, approved)
    return approved


def _read_blocked_names(connection: Connection, server: str, names: Collection[str]) -> frozenset[str]:
    """Names of these tools of a server that are blocked."""
    is_one = (approvals.c.server_name == server) & approvals.c.name.in_(names) & (approvals.c.state == "blocked")
    return frozenset(connection.execute(select(approvals.c.name).where(is_one)).scalars())


def block(connection: Connection, key: ToolKey, by: str, now_s: float, seals: Seals) -> None:
    """Switch a tool off, whatever its definition becomes; its last approved definition is remembered."""
    hash_, text = _find_decided(connection, key, seals)
    connection.execute(_build_replacement(connection), _row(key, "blocked", hash_, text, by, now_s, seals))
    note_trust(connection, seals, blocked=[key])
    _drop_votes(connection, key)
    # The user took their word back: what it had stood for earlier must not come back by itself.
    connection.execute(delete(former_approvals).where(_is(key, former_approvals)))
    mark_changed(connection, [key])


def _find_decided(connection: Connection, key: ToolKey, seals: Seals) -> tuple[str | None, str | None]:
    """Hash and definition that a gateway has approved last of a tool, also of a blocked one."""
    row = connection.execute(select(approvals).where(_is(key))).one_or_none()
    if row is None or not seals.fits(row.seal, "decision", *key, row.state, row.hash):
        return None, None
    return row.hash, row.definition


def _build_replacement(connection: Connection) -> "Insert":
    return replace_columns(connection, approvals, "state", "hash", "definition", "decided_by", "at_s", "seal")


def unblock(connection: Connection, key: ToolKey, by: str, now_s: float, seals: Seals) -> bool:
    """Lift a block; returns whether there was one.

    A definition approved before is approved again, any other waits.
    """
    hash_, text = _find_decided(connection, key, seals)
    if not connection.execute(delete(approvals).where(_is(key) & (approvals.c.state == "blocked"))).rowcount:
        return False
    if hash_ is not None:
        connection.execute(_build_replacement(connection), _row(key, "approved", hash_, text, by, now_s, seals))
    note_trust(connection, seals, lifted=[key])
    mark_changed(connection, [key])
    return True


def recall(
    connection: Connection,
    standing: ApprovalStanding,
    known: Iterable[tuple[ToolKey, str, str]],
    now_s: float,
    seals: Seals,
) -> None:
    """Writes into a new file what the memory knows of approvals; what the file knows already stays.

    Args:
        connection: In a transaction that writes.
        standing: As it was last read.
        known: Tool, change hash and definition of what was approved.
        now_s: Seconds since the epoch.
        seals: Of the store.
    """
    stored = upsert(connection, approvals).on_conflict_do_nothing()
    open_ = [each for each in known if each[0] not in standing.blocked]
    rows = [_row(key, "approved", hash_, text, BY_MEMORY, now_s, seals) for key, hash_, text in open_]
    rows += [_row(key, "blocked", None, None, BY_MEMORY, now_s, seals) for key in standing.blocked]
    if rows:
        connection.execute(stored, rows)
    note_trust(connection, seals, blocked=standing.blocked)
    _note_heard(connection, standing.baselined, now_s, seals)


def _write(
    connection: Connection, found: Iterable[tuple[ToolKey, str, str]], by: str, now_s: float, seals: Seals
) -> None:
    written = _build_replacement(connection)
    for some in parts(found):
        if by != BY_FIRST_LIST:  # before it there was nothing
            _keep_former(connection, {key: hash_ for key, hash_, _ in some}, now_s, seals)
        rows = [_row(key, "approved", hash_, text, by, now_s, seals) for key, hash_, text in some]
        connection.execute(written, rows)


def _keep_former(connection: Connection, entering: Mapping[ToolKey, str], now_s: float, seals: Seals) -> None:
    """Keep approved definitions of these tools that are about to be replaced, for when they come back."""
    leaving: list[dict[str, object]] = []
    for server, some in _group_by_server(entering):
        is_one = (approvals.c.server_name == server) & approvals.c.name.in_(some) & (approvals.c.state == "approved")
        wanted = select(approvals.c.name, approvals.c.hash, approvals.c.seal).where(is_one)
        for name, hash_, seal in connection.execute(wanted):
            is_decided = seals.fits(seal, "decision", server, name, "approved", hash_)
            if is_decided and hash_ != entering[ToolKey(server, name)]:
                sealed = seals.seal("former", server, name, hash_)
                leaving.append({"server_name": server, "name": name, "hash": hash_, "at_s": now_s, "seal": sealed})
    if leaving:
        connection.execute(replace_columns(connection, former_approvals, "at_s", "seal"), leaving)
        connection.execute(_FORGET, [{"server": row["server_name"], "tool": row["name"]} for row in leaving])


def _group_by_server(keys: Iterable[ToolKey]) -> Iterator[tuple[str, list[str]]]:
    """Each server with names of its tools, as many as one statement takes."""
    names: dict[str, list[str]] = {}
    for key in keys:
        names.setdefault(key.server, []).append(key.tool)
    return ((server, some) for server, own in names.items() for some in parts(own))


def _note_heard(connection: Connection, servers: Collection[str], now_s: float, seals: Seals) -> None:
    rows = [{"server_name": server, "at_s": now_s} for server in servers]
    if rows:
        connection.execute(upsert(connection, baselines).on_conflict_do_nothing(), rows)
        note_trust(connection, seals, heard=servers)


def _row(
    key: ToolKey, state: str, hash_: str | None, text: str | None, by: str, now_s: float, seals: Seals
) -> dict[str, object]:
    values = (*key, state, hash_, text, by, now_s, seals.seal("decision", *key, state, hash_))
    return dict(zip(approvals.c.keys(), values, strict=True))


def _is(key: ToolKey, table: Table = approvals) -> ColumnElement[bool]:
    return (table.c.server_name == key.server) & (table.c.name == key.tool)


def count_votes(
    connection: Connection, found: Iterable[tuple[ToolKey, str, str]], ballot: Ballot, now_s: float, seals: Seals
) -> list[tuple[ToolKey, str, str]]:
    """Store a person's votes; return the definitions that have as many as they need.

    A person counts once for a definition, and votes for another definition of a tool are void.

    Args:
        connection: In a transaction that writes.
        found: Tool, change hash and text of what the person approves.
        ballot: The person, and how many have to agree.
        now_s: Seconds since the epoch.
        seals: Of the store.
    """
    columns, ready = approval_votes.c, []
    voter, needed, counted = ballot
    counted.clear()
    for key, hash_, text in found:
        if needed.get(key, 1) > 1:
            own = (columns.server_name == key.server) & (columns.name == key.tool)
            again = (columns.hash != hash_) | (columns.person == voter.person)
            connection.execute(delete(approval_votes).where(own, again))
            seal = seals.seal("vote", *key, hash_, voter.person, voter.name)
            values = (*key, hash_, voter.person, voter.name, now_s, seal)
            connection.execute(insert(approval_votes).values(dict(zip(columns.keys(), values, strict=True))))
            number = sum(vote.key == key for vote in find_votes(connection, seals))
            if number < needed[key]:
                counted[key] = number
                continue
            connection.execute(delete(approval_votes).where(own))
        ready.append((key, hash_, text))
    return ready


def find_votes(connection: Connection, seals: Seals) -> Sequence[Vote]:
    """All votes that carry their seals, the oldest first."""
    columns = approval_votes.c
    rows = connection.execute(select(approval_votes).order_by(columns.at_s, columns.person)).all()
    return [
        Vote(ToolKey(row.server_name, row.name), row.hash, Voter(row.person, row.shown))
        for row in rows
        if seals.fits(row.seal, "vote", row.server_name, row.name, row.hash, row.person, row.shown)
    ]


def _drop_votes(connection: Connection, key: ToolKey) -> None:
    """Void the votes for a tool."""
    own = (approval_votes.c.server_name == key.server) & (approval_votes.c.name == key.tool)
    connection.execute(delete(approval_votes).where(own))
