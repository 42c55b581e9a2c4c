"""Numbered records in memory: what the notes, tasks and contacts of the demo servers are kept in."""

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Record", "Records"]

Record = dict[str, Any]

MAX_RECORDS = 1000
"""Keeps a demo server that is fed by a loop small."""


class Records:
    """Records of one kind, by a number that is never used again.

    Args:
        kind: What a record is called in messages.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._records: dict[int, Record] = {}
        self._last_id = 0

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def add(self, **fields: Any) -> Record:
        """Keeps the fields as a new record and returns it, with its `id`.

        Raises:
            ValueError: There are 1,000 records already.
        """
        if len(self._records) >= MAX_RECORDS:
            raise ValueError(f"There are {MAX_RECORDS} {self._kind}s already. Delete one first.")
        self._last_id += 1
        record = {"id": self._last_id, **fields}
        self._records[self._last_id] = record
        return record

    def get(self, id: int) -> Record:
        """The record with that number, to be read or changed in place.

        Raises:
            ValueError: There is none.
        """
        if (record := self._records.get(id)) is None:
            raise ValueError(f"There is no {self._kind} {id}.")
        return record

    def delete(self, id: int) -> Record:
        """Forgets the record with that number and returns it.

        Raises:
            ValueError: There is none.
        """
        record = self.get(id)
        del self._records[id]
        return record

    def delete_where(self, is_unwanted: Callable[[Record], bool]) -> int:
        """Forgets all records for which `is_unwanted` holds; returns how many."""
        unwanted = [record["id"] for record in self if is_unwanted(record)]
        for id in unwanted:
            del self._records[id]
        return len(unwanted)
