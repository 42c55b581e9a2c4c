"""Drive every foreign client over every transport and note the outcome: python scripts/try_clients.py [OPTION ...].

Writes tests/clients/runs.json, of which scripts/regenerate_docs.py makes the table of clients in docs/clients/index.md.
Clients that were skipped keep what was noted before. What is installed for them lies in the user's cache folder.
"""

import datetime
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUNS = ROOT / "tests" / "clients" / "runs.json"
TESTS = ["tests/agents", "tests/clients/test_libraries.py"]


def outcomes(report: Path) -> dict[str, dict[str, str]]:
    """What a junit report says of each client: its version, the outcome over each transport, the era it spoke."""
    found: dict[str, dict[str, str]] = {}
    month = datetime.datetime.now(datetime.UTC).strftime("%Y-%m")
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        noted = {each.get("name", ""): each.get("value", "") for each in case.iter("property")}
        if "client" not in noted or case.find("skipped") is not None:
            continue
        failed = case.find("failure") is not None or case.find("error") is not None
        row = found.setdefault(noted["client"], {"version": noted["version"], "tried": month})
        row[noted["transport"]] = "fails" if failed else "works"
        if noted.get("era"):
            row["era"] = noted["era"]
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # The other family has no properties in it.
        options = ["-m", "clients or soak", "-o", "junit_family=xunit1", f"--junitxml={report}", *sys.argv[1:]]
        command = [sys.executable, "-m", "pytest", *TESTS, *options]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        known = json.loads(RUNS.read_text("utf-8")) if RUNS.exists() else {}
        for client, row in outcomes(report).items():
            known[client] = known.get(client, {}) | row
    RUNS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
