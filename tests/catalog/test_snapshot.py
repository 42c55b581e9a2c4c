"""Snapshots stay consistent through any series of changes, and tell the way from one to another."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.catalog import Diff, Snapshot
from smart_mcp_proxy.models import ToolKey, ToolRecord


def record(id_: int, server: str = "s", version: int = 0) -> ToolRecord:
    key = ToolKey(server, f"t{id_}")
    return ToolRecord(id_, key, f"{server}__t{id_}", b"{}", f"hash{version}", "sha256:0")


steps = st.lists(st.tuples(st.sets(st.integers(1, 9)), st.sets(st.integers(1, 9))), max_size=6)


def play(steps: Sequence[tuple[set[int], set[int]]]) -> list[Snapshot]:
    """Snapshots after each step of (ids written, ids removed); id parity chooses the server."""
    snapshots = [Snapshot()]
    for number, (written, removed) in enumerate(steps, 1):
        records = [record(id_, "odd" if id_ % 2 else "even", number) for id_ in written]
        snapshots.append(snapshots[-1].replace_records(number, records, removed - written))
    return snapshots


@pytest.mark.long  # a third of a second of processor time
@given(steps)
def test_all_four_views_hold_the_same_tools(steps: list[tuple[set[int], set[int]]]) -> None:
    """By id, key, listed name and server one finds the same records, whatever came and went."""
    last = play(steps)[-1]
    everything = set(last.by_id)
    assert {key: found.id for key, found in last.by_key.items()} == {r.key: r.id for r in last.by_id.values()}
    assert {name: found.id for name, found in last.by_listed.items()} == {
        r.listed_name: r.id for r in last.by_id.values()
    }
    assert {r.id for group in last.by_server.values() for r in group} == everything
    for server, group in last.by_server.items():
        assert [r.id for r in group] == sorted(r.id for r in group)
        assert group
        assert {r.key.server for r in group} == {server}


@pytest.mark.long  # a third of a second of processor time
@given(steps, st.data())
def test_a_diff_leads_from_any_snapshot_to_any_later_one(
    steps: list[tuple[set[int], set[int]]], data: st.DataObject
) -> None:
    """An index at the older snapshot that applies the diff holds what the later one holds."""
    snapshots = play(steps)
    start = data.draw(st.integers(0, len(snapshots) - 1))
    older, newer = snapshots[start], snapshots[-1]
    diff = newer.since(older)

    index = {id_: found.change_hash for id_, found in older.by_id.items()}
    for id_ in diff.removed:
        del index[id_]
    for found in diff.added:
        assert found.id not in index
        index[found.id] = found.change_hash
    for found in diff.changed:
        assert found.id in index
        index[found.id] = found.change_hash
    assert index == {id_: found.change_hash for id_, found in newer.by_id.items()}


def test_two_tools_may_swap_their_listed_names() -> None:
    """A name that moves from one record to another is not lost on the way."""
    one, two = record(1), record(2)
    before = Snapshot().replace_records(1, [one, two], [])
    swapped = [
        ToolRecord(1, one.key, two.listed_name, b"{}", "h", "d"),
        ToolRecord(2, two.key, one.listed_name, b"{}", "h", "d"),
    ]
    after = before.replace_records(2, swapped, [])
    assert {name: found.id for name, found in after.by_listed.items()} == {"s__t1": 2, "s__t2": 1}


def test_a_diff_is_false_when_nothing_changed() -> None:
    """`if diff:` asks whether there is anything to do."""
    snapshot = Snapshot().replace_records(1, [record(1)], [])
    assert not snapshot.since(snapshot)
    assert not Diff((), (), (), 7)
    assert snapshot.since(Snapshot())


def test_the_repr_says_how_much_it_holds() -> None:
    """A status line for logs."""
    snapshot = Snapshot().replace_records(3, [record(1), record(2, "other")], [])
    assert repr(snapshot) == "<Snapshot generation=3 tools=2 servers=2>"
