"""The tests of the catalog run on each kind of store, or stand in a short list with the reason why not."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

CATALOG = Path(__file__).parent / "catalog"
KINDS: Final = {"sqlite", "postgresql"}

NAMED: Final = {
    # The SQLite file: its journal, its recovery, its migrations, what stands beside it.
    "recovery/test_read_only.py",
    "recovery/test_rollback_guard.py",
    "recovery/test_wal_files.py",
    "tables/test_schema.py",
    "tables/test_approvals.py::test_a_file_that_cannot_be_read_at_the_start_trusts_nothing",
    "tables/test_approvals.py::test_a_process_killed_while_it_replaces_a_damaged_file_leaves_none_that_trusts",
    "tables/test_approvals.py::test_after_a_damaged_file_nothing_is_trusted_until_the_user_says_so",
    "tables/test_approvals.py::test_the_tools_of_an_older_file_were_served_and_stay_so",
    "tables/test_activity_chains.py::test_values_of_other_types_are_told",
    "test_processes.py::test_a_lock_that_never_ends_is_a_catalog_error",
    "test_stored_links.py::test_a_file_of_the_version_before_gets_room_for_links",
    # The PostgreSQL server: its refusals, its notifications, its partitions.
    "store/test_postgres.py",
    "store/test_server_settings.py",
    "store/test_doorbell.py",
    "tables/test_activity_days.py",
    # Rules that need no store, and hundreds of examples against a model of them, each with a store of its own.
    "store/test_migrations.py",
    "store/test_loss.py::test_the_reason_can_be_asked_for_while_the_store_comes_back",
    "test_hashing.py",
    "test_moving_parts.py::test_a_folder_or_an_order_is_no_change",
    "test_moving_parts.py::test_anything_else_is_one",
    "test_moving_parts.py::test_what_is_nested_too_deeply_is_a_change",
    "test_snapshot.py",
    "test_shelves.py::test_the_name_of_an_item_leads_back_to_it",
    "test_stable_names.py",
    "test_stored_links.py::test_nobody_ever_finds_what_another_was_linked_to",
    # PostgreSQL's replicas, and keys that are files.
    *(
        f"recovery/test_seals.py::{name}"
        for name in (
            "test_a_gateway_with_another_key_seals_nothing_of_others",
            "test_an_earlier_record_is_told_from_the_latest_after_a_stop",
            "test_under_another_key_no_record_of_who_ran_unconfined_is_called_altered",
            "test_another_key_makes_an_edition_of_the_former_meaningless",
            "test_files_of_earlier_that_are_put_back_under_a_gateway_are_not_believed",
            "test_a_key_that_cannot_be_kept_seals_nothing",
            "test_a_key_that_cannot_be_read_is_not_replaced",
            "test_a_key_that_was_put_back_is_not_replaced",
            "test_a_replica_keeps_what_others_decided_once_it_ends",
            "test_replicas_on_one_database_have_one_key",
            "test_what_an_older_replica_writes_waits",
            "test_a_catalog_of_an_earlier_program_beside_a_key_is_not_believed",
            "test_without_the_key_nothing_counts_until_its_user_says_so",
        )
    ),
    "store/test_strangers_locks.py::test_a_stranger_of_the_database_keeps_no_decision_and_no_start_waiting",
    # From each kind to each: these choose their stores themselves.
    "test_copying.py",
    "test_copies_that_fail.py",
    "test_backups.py",
}
"""Files, and single tests of the others, that do not run once on each kind of store."""


def collected(cache: Path) -> list[str]:
    """The ids of all tests of the catalog, from its folder on."""
    words = [sys.executable, "-m", "pytest", "--collect-only", "-o", f"cache_dir={cache}", CATALOG]
    found = subprocess.run(words, cwd=CATALOG.parents[1], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return [line.removeprefix("tests/catalog/") for line in found.stdout.splitlines() if "::" in line]


def on_one_store(ids: list[str]) -> set[str]:
    """The tests that do not run on both kinds of store with the same parameters."""
    kinds = defaultdict[tuple[str, tuple[str, ...]], set[str]](set)
    for id_ in ids:
        test, _, rest = id_.partition("[")
        given = rest.removesuffix("]").split("-")
        kinds[test, tuple(each for each in given if each not in KINDS)] |= KINDS.intersection(given)
    return {test for (test, _), found in kinds.items() if found != KINDS}


def test_the_catalog_s_tests_run_on_both_kinds_of_store(tmp_path: Path) -> None:
    """But for those that are named here, each of which there is."""
    files = {test for test in NAMED if "::" not in test}
    found = {file if (file := test.partition("::")[0]) in files else test for test in on_one_store(collected(tmp_path))}
    assert found == NAMED


def test_the_rule_finds_a_test_that_runs_on_one_store_only() -> None:
    """Without a store among its parameters, with one of them, or with other parameters on the other one."""
    both = ["f.py::both[sqlite]", "f.py::both[postgresql]", "f.py::each[sqlite-a]", "f.py::each[postgresql-a]"]
    assert on_one_store(both) == set()
    for more in ("f.py::plain", "f.py::plain[a]", "f.py::file[sqlite]", "f.py::each[sqlite-b]"):
        assert on_one_store([*both, more]) == {more.partition("[")[0]}
