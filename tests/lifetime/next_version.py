"""The gateway as its next version might be, whose tables are a step further. Run as the command line is.

What it adds is what a step within a minor version may add: columns with a default, a table, an index.
"""

from smart_mcp_proxy.catalog.store import versions
from smart_mcp_proxy.catalog.store.migrations import MIGRATIONS, Migration

STEP = (
    "ALTER TABLE tools ADD COLUMN next_note TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE activity ADD COLUMN next_cost DOUBLE PRECISION NOT NULL DEFAULT 0",
    "ALTER TABLE instances ADD COLUMN next_zone TEXT",
    "CREATE TABLE next_notes (tool BIGINT PRIMARY KEY, note TEXT NOT NULL)",
    "CREATE INDEX idx_next_note ON tools(next_note)",
)

versions.MIGRATIONS = (*MIGRATIONS, Migration(STEP, STEP))
versions.LATEST_VERSION += 1  # type: ignore[misc]  # it is read where it is used

if __name__ == "__main__":
    from smart_mcp_proxy.cli import main

    main()
