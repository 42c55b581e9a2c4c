"""Lists the pins of this repository that hold a newer release back: package, our range, newest version, reason.

Upper bounds of pyproject.toml, and npm packages that tests and scripts install in an exact version. The reason is the
comment at the end of a pin's line; one serves all lines of a package. pip and npm say what is newest, each from where
it is set up to install from. Exit status 0, whatever is found.

Usage: outdated.py [--json]
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
NPM_FILES = ("scripts/conformance.sh", "tests/node_tools.py", "tests/agents/**/*.py", "tests/clients/**/*.py")
EXACT_REASON = "exact, so that a test that begins to fail fails by a change of ours"
UPPER = {"<", "<=", "==", "~="}
AT_ONCE = 4
"""Look-ups: each is a process, and most of its time a wait."""
LOOK_UP_S = 60
COLUMNS = ("package", "ours", "newest", "reason")

_REASON = re.compile(r"""^\s*(["'])([A-Za-z0-9][\w.-]*).*\1,?\s*#\s*(.+?)\s*$""", re.MULTILINE)
_NPM_PIN = re.compile(r"""["'=]((?:@[a-z0-9][\w.-]*/)?[a-z0-9][\w.-]*)@(\d+\.[\w.+-]+)(?:["'].*#\s*(.+))?""")


class Pin(NamedTuple):
    package: str
    ours: str
    reason: str
    source: Literal["pip", "npm"] = "pip"


def requirements(pyproject: str) -> list[Pin]:
    """The requirements of a pyproject.toml that have an upper bound, each range of a package once."""
    document = tomllib.loads(pyproject)
    project = document["project"]
    written = [
        *project["dependencies"],
        *(each for extra in project.get("optional-dependencies", {}).values() for each in extra),
        *(each for group in document.get("dependency-groups", {}).values() for each in group if isinstance(each, str)),
    ]
    reasons = {canonicalize_name(name): reason for _, name, reason in _REASON.findall(pyproject)}
    found = {}
    for each in map(Requirement, written):
        if any(bound.operator in UPPER for bound in each.specifier):
            name, ours = canonicalize_name(each.name), ",".join(sorted(map(str, each.specifier), reverse=True))
            found[name, ours] = Pin(name, ours, reasons.get(name, ""))
    return sorted(found.values())


def npm_pins(texts: Iterable[str]) -> list[Pin]:
    """The npm packages that are named with an exact version in these texts, each once."""
    found = (match for text in texts for line in text.splitlines() for match in _NPM_PIN.findall(line))
    return sorted({Pin(name, version, reason or EXACT_REASON, "npm") for name, version, reason in found})


def is_tight(ours: str) -> bool:
    """Whether a range ends within a major version, or within 0.x before 1.0."""
    ends = [bound.version.removesuffix(".*") for bound in SpecifierSet(ours) if bound.operator in UPPER]
    return any(re.fullmatch(r"\d+(\.0)*", end) is None for end in ends)


def is_held_back(pin: Pin, newest: str) -> bool:
    """Whether a pin keeps this release out by being older than it."""
    if pin.source == "npm":
        return _numbers(newest) > _numbers(pin.ours)
    upper = (bound for bound in SpecifierSet(pin.ours) if bound.operator in UPPER)
    return any(not bound.contains(newest, prereleases=True) for bound in upper)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def newest_of(pin: Pin) -> str | None:
    """The newest release that the index knows; None if it does not know the package, or cannot be asked.

    Pre-releases count beside a pin that is one.
    """
    if pin.source == "npm":
        wanted = "versions" if "-" in pin.ours else "version"
        command = ["npm", "view", pin.package, wanted, "--json", "--fetch-retries=0"]
    else:
        command = [sys.executable, "-m", "pip", "index", "versions", pin.package, "--json", "--retries=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOOK_UP_S, check=True, cwd=ROOT)
        answer = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, json.JSONDecodeError):
        return None
    if pin.source == "pip":
        return str(answer["versions"][0])
    return max(answer, key=_numbers) if isinstance(answer, list) else str(answer)


def pins_here() -> Iterator[Pin]:
    yield from requirements((ROOT / "pyproject.toml").read_text("utf-8"))
    yield from npm_pins(path.read_text("utf-8") for each in NPM_FILES for path in sorted(ROOT.glob(each)))


def reachable() -> set[str]:
    """Those of pip and npm that find themselves."""
    probes = (Pin("pip", "", "", "pip"), Pin("npm", "", "", "npm"))
    return {probe.source for probe in probes if newest_of(probe) is not None}


def table(rows: list[dict[str, str]]) -> str:
    widths = {column: max(len(column), *(len(row[column]) for row in rows)) for column in COLUMNS[:-1]}
    lines = ({column: column for column in COLUMNS}, *rows)
    return "\n".join("  ".join(line[column].ljust(widths.get(column, 0)) for column in COLUMNS) for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON to stdout; remarks stay on stderr")
    options = parser.parse_args()
    pins = list(pins_here())
    sources = reachable()
    for missing in sorted({"pip", "npm"} - sources):
        print(f"{missing} reaches no index (is there a network?): its pins were not looked up.", file=sys.stderr)
    asked = [pin for pin in pins if pin.source in sources]
    if asked:
        print(f"Looking {len(asked)} pins up ...", file=sys.stderr)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        newest = dict(zip(asked, pool.map(newest_of, asked), strict=True))
    if unknown := sorted(pin.package for pin, version in newest.items() if version is None):
        print(f"Not found: {', '.join(unknown)}.", file=sys.stderr)
    held = [(pin, version) for pin, version in newest.items() if version is not None and is_held_back(pin, version)]
    rows = [{**pin._asdict(), "newest": version} for pin, version in held]
    if options.json:
        print(json.dumps(rows, indent=2))
    elif rows:
        print(table([{**row, "reason": row["reason"] or "none is kept in pyproject.toml"} for row in rows]))
    elif asked:
        print("No pin holds a newer release back.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
