"""What the gateway knows of published servers, from what was seen of them."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trials.servers import PublishedServer

LARGE_MB = 50
"""Smaller packages are not mentioned."""


def write_known(table: Sequence[PublishedServer], results: Path, known: Path) -> None:
    """Write the rows of the servers that were seen anew; other rows, and what is written by hand in these, stay.

    Of a name that npm and PyPI give to different servers nothing is known.
    """
    names = Counter(server.package for server in table)
    rows: dict[str, dict[str, Any]] = json.loads(known.read_text("utf-8"))
    for server in table:
        path = results / f"{server.name}.json"
        seen = json.loads(path.read_text("utf-8")) if path.exists() else {}
        if "alone" not in seen:
            continue
        if names[server.package] > 1:
            rows.pop(server.package, None)
            continue
        row = rows.get(server.package, {})
        row = {key: value for key, value in row.items() if key not in {"needs", "installed_mb"}}
        if seen["alone"].get("bare"):
            row["needs"] = sorted(server.variables)
        if seen["size_mb"] >= LARGE_MB:
            row["installed_mb"] = round(seen["size_mb"])
        through = seen.get("through", {})
        if through.get("state") == "ready" and "--read /proc" in through.get("followed", ""):
            row["has_own_world"] = True  # bubblewrap has one to give
        rows.pop(server.package, None)
        if row:
            rows[server.package] = row
    lines = (f" {json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))
    known.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
