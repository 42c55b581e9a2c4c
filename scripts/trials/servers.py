"""The table of published servers, and their installation in a folder that is removed afterwards."""

import configparser
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

INSTALLED_S = 600
"""Seconds that one installation may take."""
DUMMY = "dummy-0000000000000000000000000000"
"""Value of a variable that the table leaves empty: of a length that most servers take for a key."""


@dataclass(frozen=True, eq=False)
class PublishedServer:
    """A server of the table: package, version, what it is started with, what is known of it."""

    name: str
    package: str
    version: str
    ecosystem: str
    language: str = ""
    program: str = ""
    """Name of its program, where that is not the package's own."""
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()
    """Further requirements, which the package should have and does not."""
    call: Mapping[str, str] = field(default_factory=dict)
    """Tool and arguments (JSON) of a call that changes nothing and needs no network."""
    search: Mapping[str, str] = field(default_factory=dict)
    """A query, and the tool that it should find."""

    def fill(self, word: str, folder: Path) -> str:
        """A word of the table with the folder's places in it."""
        return word.replace("{work}", str(folder / "work")).replace("{home}", str(folder / "home"))

    def environ(self, folder: Path) -> dict[str, str]:
        """Variables that the server gets: its own home, its dummies, and the mark by which its processes are found."""
        own = {name: self.fill(text or DUMMY, folder) for name, text in self.variables.items()}
        return {"HOME": str(folder / "home"), "PUBLISHED_SERVER": mark_processes(self.name), **own}


def mark_processes(name: str) -> str:
    """The value of PUBLISHED_SERVER in the processes of one server of this run."""
    return f"{name}/{os.getpid()}"


def read_table(path: Path) -> list[PublishedServer]:
    """The servers of a table, in its order."""
    rows = tomllib.loads(path.read_text("utf-8"))
    lists = ("arguments", "requirements")
    return [
        PublishedServer(name, **{key: tuple(value) if key in lists else value for key, value in row.items()})
        for name, row in rows.items()
    ]


@dataclass(frozen=True)
class Installation:
    """An installed server: what to run, what it weighs."""

    argv: tuple[str, ...]
    size_mb: float
    seconds: float


class InstallError(Exception):
    """A package that could not be installed, with the end of what its installer said."""


def install(server: PublishedServer, folder: Path, python: str) -> Installation:
    """Install a server by pip or npm into a folder.

    Raises:
        InstallError: It could not be installed, or has no program.
    """
    started = time.monotonic()
    program = (_install_pypi if server.ecosystem == "pypi" else _install_npm)(server, folder / "installed", python)
    for place in ("home", "work"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    size = sum(each.lstat().st_size for each in (folder / "installed").rglob("*") if not each.is_dir())
    words = tuple(server.fill(word, folder) for word in server.arguments)
    return Installation((str(program), *words), round(size / 1e6, 1), round(time.monotonic() - started, 1))


def _install_pypi(server: PublishedServer, folder: Path, python: str) -> Path:
    _run([python, "-m", "venv", "--without-pip", str(folder)])
    inside = str(folder / "bin" / "python")
    wanted = (f"{server.package}=={server.version}", *server.requirements)
    # uv does not compile either: a first start is as long as with uvx.
    pip = [sys.executable, "-m", "pip", "--python", inside, "install", "--quiet", "--no-input", "--no-compile"]
    _run([*pip, *wanted])
    name = server.package.replace("-", "_").replace(".", "_").lower()
    programs = {server.program} if server.program else _read_scripts(folder, name) or {server.package}
    return folder / "bin" / _choose(programs, server.package)


def _read_scripts(folder: Path, name: str) -> set[str]:
    """The programs that the package says it has."""
    for path in folder.glob("lib/python*/site-packages/*.dist-info/entry_points.txt"):
        if path.parent.name.lower().replace("-", "_").replace(".", "_").startswith(f"{name}_"):
            parser = configparser.ConfigParser(delimiters=("=",))
            parser.read_string(path.read_text("utf-8"))
            return set(parser["console_scripts"]) if "console_scripts" in parser else set()
    return set()


def _install_npm(server: PublishedServer, folder: Path, _python: str) -> Path:
    folder.mkdir(parents=True)
    wanted = (f"{server.package}@{server.version}", *server.requirements)
    _run(["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error", *wanted])
    package = folder / "node_modules" / server.package
    named = json.loads((package / "package.json").read_text("utf-8")).get("bin") or {}
    own = server.package.rpartition("/")[2]
    programs = {server.program} if server.program else {own} if isinstance(named, str) else set(named)
    if programs:
        return folder / "node_modules" / ".bin" / _choose(programs, own)
    # Packages of one platform hold a program that no `bin` names.
    found = sorted(each for each in package.rglob("*") if each.is_file() and os.access(each, os.X_OK))
    if not found:
        raise InstallError("The package has no program.")
    return found[0]


def _choose(programs: set[str], package: str) -> str:
    """The package's own program, else one that names the protocol, else the first."""
    return min(programs, key=lambda name: (name != package, "mcp" not in name, len(name), name))


def _run(argv: list[str]) -> None:
    try:
        environ = os.environ | {"PUPPETEER_SKIP_DOWNLOAD": "true", "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1"}
        done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALLED_S, env=environ, check=False)
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{argv[0]} took more than {INSTALLED_S} s") from error
    if done.returncode:
        raise InstallError((done.stderr or done.stdout).strip()[-1500:])
