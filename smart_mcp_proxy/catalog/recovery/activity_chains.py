"""Chains of activity records: each is sealed together with the one before it, so that changes show.

A process has one chain for each day (UTC) on which its records were made. Retention takes whole days and so whole
chains; a limit of rows moves a chain's beginning on. Both leave a sealed checkpoint: the last record that left.

How many chains were begun stands in `SealedTrust`, so that none is removed whole.

What this cannot show: the latest records removed, with the rows that say where chains end, and how many there are, put
back as they stood earlier, be it with the whole database; retention led astray by a chain's day or a record's place,
which are not sealed; and what somebody does who can read the key of the seals
(docs/activity.md#records-that-cannot-be-changed-unseen).
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import msgspec

from smart_mcp_proxy.catalog.recovery.seals import Seals

Values = tuple[object, ...]
_encode = msgspec.json.Encoder().encode
_NOT_COUNTED = "How many chains were begun is not sealed under this store's key: mcpproxy doctor"


class ChainHead(NamedTuple):
    """The end of a chain.

    Attributes:
        chain: Its number in the store, from 1 on; 0 is none.
        link: Of its last record, from 1 on.
        seal: Of that record; empty before the first one.
    """

    chain: int
    link: int = 0
    seal: str = ""

    @classmethod
    def read(cls, *values: Any) -> Self:
        """The place that columns name; one of no chain where they are of other types, as SQLite lets them be."""
        return cls(*values) if [*map(type, values)] == [int, int, str] else cls(-1, 1)


class ChainProof(msgspec.Struct, frozen=True):
    """The result of a look through all chains.

    Attributes:
        records: Sealed records that are as they were made.
        chains: Chains that they are part of.
        unsealed: Records in no chain: of earlier programs, copied from another store, or added by hand.
        removed: Records that retention has removed from these chains, with a checkpoint.
        problems: What was changed, added or removed beside the gateway; empty where nothing was.
    """

    records: int
    chains: int
    unsealed: int
    removed: int
    problems: list[str]


def seal_record(seals: Seals, before: ChainHead, row: Values) -> str:
    """Return the seal of the record that follows the end of a chain."""
    return seals.seal_fast(
        b"activity", b"%d %d %b\n%b" % (before.chain, before.link + 1, before.seal.encode(), _encode(row))
    )


def seal_place(seals: Seals, kind: str, head: ChainHead) -> str:
    """Return the seal of a chain's start or end."""
    return seals.seal(f"activity {kind}", *map(str, head))


class Chains(NamedTuple):
    """Beginnings and ends of all chains, by number, and what is wrong with them."""

    starts: dict[int, ChainHead]
    ends: dict[int, ChainHead]
    problems: list[str]


def check_chains(seals: Seals, rows: Iterable[Any], begun: int | None) -> Chains:
    """Check the seals of chains' starts and ends.

    Args:
        seals: Of the store.
        rows: Of the table of chains, by number.
        begun: Number of chains that were begun; None where this store's key has not sealed that.
    """
    found = Chains({}, {}, [_NOT_COUNTED] if begun is None else [])
    for row in rows:
        start = ChainHead.read(row.id, row.first_link, row.first_seal)
        end = ChainHead.read(row.id, row.last_link, row.last_seal)
        if missing := range(max(found.ends, default=0) + 1, row.id):
            found.problems.append(_describe_removed("Chain", missing))
        sealed = ((row.start, "start", start), (row.end, "end", end))
        if not all(seals.fits(seal, f"activity {kind}", *map(str, head)) for seal, kind, head in sealed):
            found.problems.append(f"Chain {row.id} was changed, or sealed under another key than this store's.")
        found.starts[row.id], found.ends[row.id] = start, end
    if missing := range(max(found.ends, default=0) + 1, (begun or 0) + 1):
        found.problems.append(_describe_removed("Chain", missing))
    return found


class SealedRecord(NamedTuple):
    """A stored record with its place in its chain, and its values by column, the uid first."""

    place: int
    head: ChainHead
    values: Values


class ChainCheck:
    """A look through all records in the order in which they were stored.

    Args:
        seals: Of the store.
        chains: As they stood before the look.
    """

    def __init__(self, seals: Seals, chains: Chains) -> None:
        self._seals = seals
        self._chains = chains
        self._at = dict(chains.starts)
        self._records = self._unsealed = 0
        self._found: list[tuple[ChainHead, str]] = []
        self._later: list[SealedRecord] = []

    def add(self, records: Iterable[SealedRecord]) -> None:
        """Looks at more records."""
        for record in records:
            head, uid = record.head, record.values[0]
            if not head.chain:
                self._unsealed += 1
                continue
            before = self._at.get(head.chain)
            if before is None or head.link > self._chains.ends[head.chain].link:
                self._later.append(record)
                continue
            if head.link <= before.link:
                if head.link > self._chains.starts[head.chain].link:
                    self._found.append((head, f"Record {uid} was added to chain {head.chain}."))
                else:  # on its way out, or put there: nothing vouches for it any more
                    self._unsealed += 1
                continue
            if head.link > before.link + 1:
                self._found.append((ChainHead(head.chain, head.link - 1), _describe_missing(before, head)))
                before = None
            self._compare(before, record)
            self._at[head.chain] = head

    def _compare(self, before: ChainHead | None, record: SealedRecord) -> None:
        # Behind a hole only its own successor tells whether a record is as it was.
        if before is None or record.head.seal == seal_record(self._seals, before, record.values):
            self._records += 1
            return
        chain, link, _ = record.head
        self._found.append((record.head, f"Record {record.values[0]} (chain {chain}, link {link}) was changed."))

    def end(self, after: Chains) -> ChainProof:
        """Sum up; what retention removed meanwhile is no problem.

        Args:
            after: The chains as they stand now.
        """
        for chain, end in self._chains.ends.items():
            if (at := self._at[chain]).link < end.link:
                self._found.append((end, _describe_missing(at, ChainHead(chain, end.link + 1))))
        for record in self._later:
            end_now = after.ends.get(record.head.chain)
            if end_now is None or record.head.link > end_now.link:  # others were stored while this looked
                self._found.append((record.head, f"Record {record.values[0]} is of no chain that a gateway made."))
        left = {chain: start.link for chain, start in after.starts.items()}
        problems = [text for head, text in self._found if head.link > left.get(head.chain, 0)]
        return ChainProof(
            records=self._records,
            chains=len(self._at),
            unsealed=self._unsealed,
            removed=sum(start.link for start in self._chains.starts.values()),
            problems=[*self._chains.problems, *problems],
        )


def _describe_missing(before: ChainHead, after: ChainHead) -> str:
    return f"Of chain {before.chain}: {_describe_removed('record', range(before.link + 1, after.link))}"


def _describe_removed(noun: str, numbers: range) -> str:
    if len(numbers) == 1:
        return f"{noun} {numbers[0]} was removed."
    return f"{noun}s {numbers[0]} to {numbers[-1]} were removed."
