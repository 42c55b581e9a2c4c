"""The report of all that was tried."""

import json
from collections.abc import Sequence
from pathlib import Path

from trials.servers import PublishedServer


def write_report(table: Sequence[PublishedServer], results: Path, work: Path) -> None:
    report = {}
    for server in table:
        path = results / f"{server.name}.json"
        if path.exists():
            report[server.name] = json.loads(path.read_text("utf-8"))
    (work / "report.json").write_text(json.dumps(report, indent=1), "utf-8")
