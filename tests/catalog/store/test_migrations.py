"""Steps of the tables on PostgreSQL: each only adds, because a gateway of the version before goes on meanwhile."""

import re
from collections.abc import Sequence

import pytest

from smart_mcp_proxy.catalog.store.migrations import MIGRATIONS, POSTGRES_TABLES, READABLE_FROM
from smart_mcp_proxy.catalog.tables.activity_days import ACTIVITY_DAYS

CREATES = re.compile(r"CREATE (?:TABLE|INDEX|SEQUENCE|FUNCTION) (\w+)")
ADDS_COLUMN = re.compile(r"ALTER TABLE \w+ ADD COLUMN \w+ [^,]+")
RULES = re.compile(r"CREATE (?:UNIQUE INDEX \w+|TRIGGER \w+ AFTER [A-Z ]+) ON (\w+)")
COLUMN = re.compile(r"^ {6}(\w+) +(BIGINT|TEXT|DOUBLE PRECISION)(.*?),?$", re.MULTILINE)

REPLACED_WHOLE = ACTIVITY_DAYS
"""The one exception: the activity log moves from one table into daily partitions under the same name.

An older program still works because it names `activity` and its columns, never the table behind the name: all of them
are there as they were, `id` still numbers itself, and `uid` is still unique, which "ON CONFLICT DO NOTHING" needs. All
of it is one transaction, in which the rows move along: one who writes meanwhile waits and finds the new table. No
statement is prepared, so none is tied to the old one. `test_the_log_of_an_earlier_version_goes_on` shows it.
"""


FILLS = re.compile(r"INSERT INTO (\w+) SELECT ")


def takes_away(statements: Sequence[str]) -> list[str]:
    """Those statements of a step that do more than add: a program of the version before might miss something."""
    made = {found[1] for statement in statements if (found := CREATES.match(statement))}
    return [statement for statement in statements if not _only_adds(statement, made)]


def _only_adds(statement: str, made: set[str]) -> bool:
    if CREATES.match(statement):
        return True
    if found := FILLS.match(statement):
        return found[1] in made
    if found := RULES.match(statement):  # on a table from before it may refuse what is inserted there
        return found[1] in made
    # Who does not know the column does not name it.
    is_filled = "NOT NULL" not in statement or " DEFAULT " in statement
    return ADDS_COLUMN.fullmatch(statement) is not None and is_filled and "UNIQUE" not in statement


def columns(statements: Sequence[str], table: str) -> dict[str, tuple[str, bool]]:
    """Type of each column of a table, and whether it can be null, as the statements make it."""
    (made,) = (statement for statement in statements if statement.startswith(f"CREATE TABLE {table} ("))
    may_be_null = {name: "NULL" not in rest and "PRIMARY KEY" not in rest for name, _, rest in COLUMN.findall(made)}
    return {name: (kind, may_be_null[name]) for name, kind, _ in COLUMN.findall(made)}


def test_later_steps_only_add() -> None:
    """All since PostgreSQL came, but the one that is named and explained above."""
    steps = [step.postgresql for step in MIGRATIONS[READABLE_FROM:]]
    left = [[statement for statement in step if statement not in REPLACED_WHOLE] for step in steps]
    assert [takes_away(step) for step in left] == [[] for _ in steps]
    assert sum(set(REPLACED_WHOLE) <= set(step) for step in steps) == 1
    assert takes_away(REPLACED_WHOLE)


def test_the_exception_leaves_an_older_program_what_it_names() -> None:
    """The same table with the same columns, an id that numbers itself, a unique uid, and every row."""
    before, after = columns(POSTGRES_TABLES, "activity"), columns(REPLACED_WHOLE, "activity")
    assert before == after and len(after) == 16
    (made,) = (statement for statement in REPLACED_WHOLE if statement.startswith("CREATE TABLE activity ("))
    assert "DEFAULT nextval" in made and "UNIQUE (uid)" in made
    (moved,) = (statement for statement in REPLACED_WHOLE if statement.startswith("INSERT INTO activity ("))
    assert all(len(re.findall(rf"\b{name}\b", moved)) == 2 for name in after)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE tools",
        "DROP INDEX idx_tools_hash",
        "DELETE FROM tools",
        "UPDATE tools SET hash = ''",
        "ALTER TABLE tools RENAME TO others",
        "ALTER TABLE tools DROP COLUMN hash",
        "ALTER TABLE tools ADD COLUMN zone TEXT NOT NULL",
        "ALTER TABLE tools ADD COLUMN zone TEXT, DROP COLUMN hash",
        "ALTER TABLE tools ADD COLUMN zone TEXT UNIQUE",
        "ALTER TABLE tools ALTER COLUMN hash SET NOT NULL",
        "CREATE UNIQUE INDEX idx_names ON tools(name)",
        "CREATE TRIGGER no BEFORE INSERT ON tools EXECUTE FUNCTION no()",
        "CREATE OR REPLACE FUNCTION mcpproxy_decision() RETURNS trigger",
    ],
)
def test_a_statement_that_takes_something_away_is_found(statement: str) -> None:
    """The check above can fail."""
    assert takes_away([statement]) == [statement]


def test_a_table_of_the_same_step_may_be_ruled_as_it_likes() -> None:
    """Nobody used it before."""
    step = ["CREATE TABLE notes (name TEXT)", "CREATE UNIQUE INDEX idx_notes ON notes(name)"]
    assert takes_away([*step, "ALTER TABLE tools ADD COLUMN note TEXT NOT NULL DEFAULT ''"]) == []
    tells = "CREATE TRIGGER tells AFTER INSERT OR DELETE ON {} FOR EACH ROW EXECUTE FUNCTION tells()"
    assert takes_away([*step, tells.format("notes"), tells.format("tools")]) == [tells.format("tools")]
