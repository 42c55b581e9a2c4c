"""Says what the conformance suite's client scenarios find with the gateway as the client of their servers.

Started by scripts/conformance.sh, which installs the suite.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from conformance import BASELINE, ROOT, Checks, read_baseline

CLIENT = ROOT / "tests" / "conformance" / "client_under_test.py"
HANDING = CLIENT.with_name("handing_client.py")
VERSIONS = ("2025-03-26", "2025-11-25", "2026-07-28", "extension")
AT_ONCE = 2
READY_S = 60
CLIENT_S = 90
"""For one scenario; a start of the gateway and up to three sign-ins on a busy machine."""
OF_SKILLS = "sep-2640-"
"""Scenarios that the same agent plays without the gateway, too."""
EXITED = "exit"
"""In the place of a check's id: the suite counts a client that ends with an error as failed."""


class Outcome(NamedTuple):
    """What the suite found in one scenario at one protocol version.

    Attributes:
        version: Of the protocol.
        scenario: Its name.
        checks: What it says of the gateway.
        direct: What it says of the agent without the gateway; None where it was not asked.
    """

    version: str
    scenario: str
    checks: Checks
    direct: Checks | None = None

    @property
    def failed(self) -> list[str]:
        """The checks that failed, as `scenario:check`."""
        return [f"{self.scenario}:{id_}" for id_, is_ok in self.checks.items() if not is_ok]

    @property
    def row(self) -> str:
        """A line of the table."""
        direct = "" if self.direct is None else f"{_counts(self.direct):>7} without"
        return f"  {self.version:<12}{self.scenario:<46}{_counts(self.checks):>7}{direct}"


def _counts(checks: Checks) -> str:
    passed = sum(checks.values())
    return f"{passed}/{len(checks) - passed}"


def pairs_of(suite: str) -> Iterator[tuple[str, str]]:
    """Every scenario at every protocol version that it applies to."""
    done = subprocess.run(["node", suite, "list", "--client"], capture_output=True, text=True, check=True)
    for scenario, versions in re.findall(r"^ +- (\S+) \[(.*)\]$", done.stdout, re.MULTILINE):
        yield from ((version, scenario) for version in versions.split(",") if version in VERSIONS)


@contextmanager
def waiting_client(path: Path) -> Iterator[str]:
    """A client that has imported all it needs and plays scenarios at this socket; the command that hands one over."""
    with subprocess.Popen([sys.executable, CLIENT, "--wait", path], start_new_session=True) as process:
        try:
            until_s = time.monotonic() + READY_S
            while not path.exists():
                if process.poll() is not None or time.monotonic() > until_s:
                    raise SystemExit(f"{CLIENT.name} does not start")
                time.sleep(0.05)
            yield f"{sys.executable} -I -S {HANDING} {path}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def visit(suite: str, client: str, folder: Path, version: str, scenario: str) -> Outcome:
    """One scenario at one version."""
    checks = played(suite, client, folder / version, version, scenario)
    direct = None
    if scenario.startswith(OF_SKILLS):
        direct = played(suite, f"{client} --direct", folder / "direct" / version, version, scenario)
    return Outcome(version, scenario, checks, direct)


def played(suite: str, client: str, reports: Path, version: str, scenario: str) -> Checks:
    """What the suite says of one scenario, with this command for our program."""
    command = ["node", suite, "client", "--command", client, "--scenario", scenario]
    command += ["-o", str(reports), "--timeout", str(CLIENT_S * 1000)]
    command += [] if version == "extension" else ["--spec-version", version]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_S + 30, check=False)
    files = list(reports.glob(f"{scenario}-20*/checks.json"))
    if not files:
        raise SystemExit(f"the suite said nothing of {scenario}:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    checks: Checks = {}
    for check in json.loads(max(files).read_text("utf-8")):
        if check["status"] in ("SUCCESS", "FAILURE"):
            checks[check["id"]] = checks.get(check["id"], True) and check["status"] == "SUCCESS"
    if all(checks.values()) and done.returncode:
        checks[EXITED] = False
    return checks


def judge(outcomes: list[Outcome], baseline: Mapping[str, str]) -> list[str]:
    """What must not be: failures that nothing explains, and explanations of what does not fail."""
    problems, used = [], set()
    for outcome in outcomes:
        own = [id_ for id_, is_ok in (outcome.direct or {}).items() if not is_ok]
        problems += [f"{outcome.version}: the agent itself fails {outcome.scenario}:{id_}" for id_ in own]
        for failed in outcome.failed:
            names = {failed, outcome.scenario} & baseline.keys()
            used |= names
            if not names:
                problems.append(f"{outcome.version}: the gateway fails {failed}")
    return problems + [f"{BASELINE.name} explains {name}, which does not fail" for name in baseline.keys() - used]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", help="the suite's index.js")
    parser.add_argument("--keep", type=Path, help="folder for the suite's own reports")
    parser.add_argument("--scenario", help="only this one; the baseline is then not judged as a whole")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(AT_ONCE) as pool:
        pairs = [pair for pair in pairs_of(options.suite) if options.scenario in (None, pair[1])]
        folder = options.keep or Path(temporary)
        with waiting_client(Path(temporary) / "client") as client:
            outcomes = list(pool.map(lambda pair: visit(options.suite, client, folder, *pair), pairs))
    baseline = read_baseline("client")
    if options.scenario is not None:
        baseline = {name: why for name, why in baseline.items() if name.partition(":")[0] == options.scenario}
    problems = judge(outcomes, baseline)
    whole = sum(bool(outcome.checks) and not outcome.failed for outcome in outcomes)
    print(*(outcome.row for outcome in outcomes), sep="\n")
    print(f"{whole} of {len(outcomes)} pairs of scenario and version pass whole (passed/failed checks above).")
    print("\n".join(problems) or f"{len(baseline)} entries of {BASELINE.name} explain the others.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
