"""Compares what the conformance suite says of the fixture server with what it says of the gateway in front of it.

Started by scripts/conformance.sh, which installs the suite.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

ROOT = Path(__file__).parent.parent
FIXTURE = ROOT / "tests" / "conformance" / "fixture_server.py"
BASELINE = ROOT / "tests" / "conformance" / "baseline.yml"
CLIENT_PREFIX = "client:"
VERSIONS = ("2025-11-25", "2026-07-28")
START_S = 60
SUITE_S = 240
STOP_S = 15
RESULT = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")

Checks = dict[str, bool]
"""Whether a check passed, by its id; of several with one id the worst counts."""


@dataclass(frozen=True)
class Comparison:
    """One protocol version: the checks of each scenario, at the fixture and at the gateway.

    Attributes:
        version: Of the protocol.
        direct: What the suite says of the fixture.
        through: What it says of the gateway.
    """

    version: str
    direct: Mapping[str, Checks]
    through: Mapping[str, Checks]

    def lost(self) -> Iterator[str]:
        """`scenario:check` of everything that passes, or is absent, without the gateway, and does not pass through it.

        A check is absent where the suite did not come to it: the fixture passes it, and nobody knows of the gateway.
        """
        for scenario, checks in self.through.items():
            direct = self.direct.get(scenario, {})
            yield from (f"{scenario}:{id_}" for id_, is_ok in checks.items() if not is_ok and direct.get(id_, True))
            yield from (f"{scenario}:{id_}" for id_, is_ok in direct.items() if is_ok and id_ not in checks)
        yield from (f"{scenario}:not-run" for scenario in self.direct.keys() - self.through.keys())

    def rows(self) -> Iterator[str]:
        """The table of this version."""
        yield f"{self.version:<48}  fixture   gateway    (passed/failed checks)"
        for scenario, checks in self.direct.items():
            yield f"  {scenario:<46}{_counts(checks):>9}{_counts(self.through.get(scenario, {})):>10}"
        yield f"  {'all':<46}{_total(self.direct):>9}{_total(self.through):>10}"


def _counts(checks: Checks) -> str:
    passed = sum(checks.values())
    return f"{passed}/{len(checks) - passed}"


def _total(scenarios: Mapping[str, Checks]) -> str:
    return _counts({f"{name}:{id_}": is_ok for name, checks in scenarios.items() for id_, is_ok in checks.items()})


def read_baseline(role: str = "server") -> dict[str, str]:
    """Reason by scenario, or by `scenario:check`, of the scenarios for servers or, with `client:` in front, clients."""
    lines = [line for line in BASELINE.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    entries = {name: reason for name, _, reason in (line.partition(": ") for line in lines)}
    clients = {name: reason for name, reason in entries.items() if name.startswith(CLIENT_PREFIX)}
    if role == "server":
        return {name: reason for name, reason in entries.items() if name not in clients}
    return {name.removeprefix(CLIENT_PREFIX): reason for name, reason in clients.items()}


@contextmanager
def started(command: list[str], log: Path, **environment: str) -> Iterator[str]:
    """The first line that a process prints; the process is ended afterwards."""
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            limit = Timer(START_S, process.kill)
            limit.start()
            line = process.stdout.readline()
            limit.cancel()
            if not line:
                raise SystemExit(f"{command[-1]} did not start:\n{log.read_text('utf-8', 'replace')[-2000:]}")
            yield line.strip()
            # The suite counts passes against a dead port too.
            if process.poll() is not None:
                raise SystemExit(f"{command[-1]} died:\n{log.read_text('utf-8', 'replace')[-2000:]}")
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def run_suite(suite: str, url: str, version: str, folder: Path) -> dict[str, Checks]:
    """The checks of every scenario of one version, in the suite's order."""
    command = ["node", suite, "server", "--url", url, "--suite", "all", "--spec-version", version, "-o", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SUITE_S, check=False)
    found: dict[str, Checks] = {}
    for file in folder.glob("*/checks.json") if folder.exists() else ():
        name = RESULT.fullmatch(file.parent.name)
        checks = found.setdefault(name["scenario"] if name else file.parent.name, {})
        for check in json.loads(file.read_text("utf-8")):
            if check["status"] in ("SUCCESS", "FAILURE"):
                checks[check["id"]] = checks.get(check["id"], True) and check["status"] == "SUCCESS"
    order = re.findall(r"Running scenario: (\S+)", done.stdout)
    if not order or set(order) - found.keys():
        raise SystemExit(f"the suite left scenarios out:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    return {name: found[name] for name in order}


def compare(suite: str, folder: Path) -> list[Comparison]:
    """Both versions, at both addresses."""
    with ExitStack() as stack:
        # Two of them: what the suite itself sends to the first is no business of the test's notes of headers.
        direct = stack.enter_context(started([sys.executable, str(FIXTURE)], folder / "direct.log", RUN_WIRE_NOTES=""))
        fixture = stack.enter_context(started([sys.executable, str(FIXTURE)], folder / "fixture.log"))
        # Trusted: the suite has the server add a tool, and nobody is there to approve it.
        entry = {"type": "http", "url": fixture, "trust": "trusted", "input_requests": True, "connection": "per_client"}
        servers = {"mcpServers": {"fixture": entry}}
        options = ["serve", "--passthrough", "fixture", "--http", "--port", "0", "--json"]
        report = stack.enter_context(
            started(
                [sys.executable, "-m", "smart_mcp_proxy", *options],
                folder / "gateway.log",
                MCPPROXY_CONFIG_JSON=json.dumps(servers),
                MCPPROXY_DATA_DIR=str(folder / "data"),
            )
        )
        urls = {"fixture": direct, "gateway": json.loads(report)["url"]}
        runs = {
            (name, version): run_suite(suite, url, version, folder / f"{name}-{version}")
            for version in VERSIONS
            for name, url in urls.items()
        }
    return [Comparison(version, runs["fixture", version], runs["gateway", version]) for version in VERSIONS]


def judge(comparisons: list[Comparison], baseline: Mapping[str, str]) -> list[str]:
    """What must not be: failures that nothing explains, and explanations of what does not fail."""
    problems: list[str] = []
    used: set[str] = set()
    for comparison in comparisons:
        for scenario, checks in comparison.direct.items():
            failed = [id_ for id_, is_ok in checks.items() if not is_ok]
            problems += [f"{comparison.version}: the fixture itself fails {scenario}:{id_}" for id_ in failed]
        for lost in comparison.lost():
            names = {lost, lost.partition(":")[0]} & baseline.keys()
            used |= names
            if not names:
                problems.append(f"{comparison.version}: the gateway fails {lost}")
    problems += [f"baseline.yml explains {name}, which does not fail" for name in baseline.keys() - used]
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", help="the suite's index.js")
    parser.add_argument("--keep", type=Path, help="folder for the suite's own reports and the logs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        comparisons = compare(options.suite, folder)
    baseline = read_baseline()
    problems = judge(comparisons, baseline)
    for comparison in comparisons:
        print("\n".join(comparison.rows()), end="\n\n")
    print(f"{len(baseline)} entries of tests/conformance/baseline.yml explain what is not served, or otherwise.")
    print("\n".join(problems) or "Nothing else fails through the gateway that passes without it.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
