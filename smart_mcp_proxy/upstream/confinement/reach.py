"""Reach of a confined server, from its entry, its environment and the files that are there."""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.servers import ServerConfig, expand, find_known_server, has_process_here
from smart_mcp_proxy.servers.config import Allowance
from smart_mcp_proxy.servers.isolation import DATABASE, PACKAGES, SCRIPT, find_project, is_loose_database, list_scripts
from smart_mcp_proxy.upstream.confinement.places import (
    FILE_VARIABLE,
    GROWING,
    INSTALLATION_MARKS,
    LEFT_OUT,
    OF_PROGRAMS,
    PRIVATE,
    RUNNER_FILES,
    RUNTIMES,
    SYSTEM,
)

SHELTER: Final = "sandbox"
"""Folder in the data directory that holds the private folders."""
_PACKAGE: Final = Path(__file__).parents[2]
OWN_CODE: Final = (_PACKAGE, *([] if sys.prefix == sys.base_prefix else [Path(sys.prefix)]))
"""The gateway's own, and that of its virtual environment: a server that may change it decides what runs next."""
_NOT_IN_NAMES: Final = r"[^A-Za-z0-9._-]+"
_PATH: Final = r"(?:^|=|file://|:///)(/[^\0]*)$"
"""A path in an argument: alone, or after `=` or a scheme."""
_OF_HOME: Final = r"(?:^|(?<=[=,:]))~(?=/)"
"""The home in an argument: programs put their own for it, where a link leads to what is open."""
_LINKED_PATH: Final = r"""(?m)(?:^|["'])(/[^"'\n]+)"""
_RUNNERS: Final = ("npx", "uvx", "bunx", "dnx")
_MOST_BYTES: Final = 1 << 16


class PrivateFolder(NamedTuple):
    """Folder of one confined server alone.

    Attributes:
        path: Its home.
        guarded: What no server reaches, whatever names it: the data directory and the server file.
    """

    path: Path
    guarded: tuple[Path, ...]


class Shelter(NamedTuple):
    """Place of confined servers' private folders.

    Attributes:
        root: The folder of the folders.
        guarded: What no server reaches, whatever names it: the data directory and the server file.
    """

    root: Path
    guarded: tuple[Path, ...] = ()


class ServerReach(NamedTuple):
    """Files, network and variables of a confined server.

    Attributes:
        read: Files and folders that it may read.
        write: The same that it may change.
        listed: Folders whose entries' names it may read.
        network: Whether it may open connections; the hosts alone that it may open them to.
        has_sockets: Whether it may open sockets of the file system, since one is named.
        has_own_world: Whether it needs sockets, shared memory or processes of its own.
        variables: Its whole environment.
        cwd: Its working directory.
        links: Places in its home that lead to what it may reach in the user's, by their path there.
    """

    read: tuple[str, ...]
    write: tuple[str, ...]
    listed: tuple[str, ...]
    network: bool | tuple[str, ...]
    has_sockets: bool
    has_own_world: bool
    variables: Mapping[str, str]
    cwd: str
    links: Mapping[str, str]


def choose_private_folder(shelter: Shelter, server: str) -> PrivateFolder:
    """The private folder of a server; other names never share one."""
    name = f"{re.sub(_NOT_IN_NAMES, '_', server)[:40]}-{sha256(server.encode()).hexdigest()[:8]}"
    return PrivateFolder(shelter.root / name, shelter.guarded)


def make_private_folder(folder: PrivateFolder, links: Mapping[str, str]) -> None:
    """Make the folder, and the links in it that are not there yet; what the server has put there stays.

    Raises:
        OSError: It cannot be made.
    """
    for path in (folder.path, folder.path / "tmp"):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for inside, target in links.items():
        place = folder.path / inside
        if not os.path.lexists(place) and place.parent.resolve().is_relative_to(folder.path.resolve()):
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.symlink_to(target)


def plan_reach(config: ServerConfig, environ: Mapping[str, str], folder: PrivateFolder) -> ServerReach:
    """Plan the reach of a server.

    Args:
        config: The server, expanded.
        environ: What its process would be started with outside.
        folder: Its own.
    """
    own = {name: text for name, text in environ.items() if name not in config.env}  # an entry opens nothing by these
    home = Path(own.get("HOME") or Path.home()).resolve()
    cwd = Path(config.cwd or ".").absolute()
    named = find_open_paths(config, cwd)
    carve = Carving(home, folder.guarded)
    changed = [path.resolve() for path in _resolve(named.write, home, cwd)]
    changes = Carving(home, (*folder.guarded, *OWN_CODE))
    write = [*changes.each(_drop_led_out(_resolve(named.write, home, cwd), changed)), str(folder.path)]
    has_image = config.isolation.mode == "container"
    read = [
        *(() if has_image else carve.system()),
        *carve.each(_drop_led_out(_resolve(named.read, home, cwd), changed)),
        *carve.each(_find_own_package(config, own, home, cwd, changed)),
        *carve.each(_find_named_files(own)),
    ]
    variables = {name: text for name, text in environ.items() if name in config.env or not re.fullmatch(LEFT_OUT, name)}
    for name, path, part in () if has_image else RUNTIMES:
        place = Path(own.get(name) or home / path)
        if os.path.isdir(place):
            variables.setdefault(name, str(place))
            read += carve.each([place / part])
    read += carve.each(version for path in (() if has_image else GROWING) for version in (home / path).glob("*"))
    for name, path, secret in RUNNER_FILES:
        if name not in variables and _lacks(home / path, secret):
            variables[name] = str(home / path)
            read += carve.each([home / path])
    has_sockets = any(map(_is_socket, _resolve((*named.read, *named.write), home, cwd)))
    is_profiled = find_known_server(config.command, config.args).has_own_world
    private, inside = {"HOME": str(folder.path), "TMPDIR": str(folder.path / "tmp")}, f"{home}/"
    variables |= {name: text for name, text in private.items() if name not in config.env}
    return ServerReach(
        read=tuple(dict.fromkeys(read)),
        write=tuple(dict.fromkeys(write)),
        listed=tuple({*carve.listed, *changes.listed}),
        network=named.network,
        has_sockets=has_sockets,
        has_own_world=has_sockets or is_profiled or not PRIVATE.isdisjoint((*named.read, *named.write)),
        variables=variables,
        cwd=_choose_cwd(config, cwd, folder),
        links={path.removeprefix(inside): path for path in (*read, *write) if path.startswith(inside)},
    )


def find_open_paths(config: ServerConfig, cwd: Path) -> Allowance:
    """Return what `allow` of an entry says, else the paths that the entry names."""
    return config.isolation.allow or find_named_paths(config, cwd)


def find_shown_paths(config: ServerConfig, environ: Mapping[str, str]) -> Allowance | None:
    """Return the same of an entry as it is written, to be shown; None for no process of ours.

    Reads the file system: run it in a thread.
    """
    if not has_process_here(config):
        return None
    if config.isolation.allow is None and not config.quarantined:  # before an approval nothing is read for an entry
        with suppress(ConfigError):
            config = expand(config, environ, keyring_get=lambda name: name)  # a path is no secret of the keyring
    return name_reach(config)


def name_reach(config: ServerConfig) -> Allowance:
    """Name what a server reaches of its user's, as `find_open_paths`, with the projects of its scripts."""
    home, cwd = Path.home().resolve(), Path(config.cwd or ".").absolute()
    named = find_open_paths(config, cwd)
    changed = [path.resolve() for path in _resolve(named.write, home, cwd)]
    return replace(named, projects=tuple(dict.fromkeys(map(str, _find_projects(config, home, cwd, changed)))))


def find_named_paths(config: ServerConfig, cwd: Path) -> Allowance:
    """Paths that an entry names: working directory, and existing ones in arguments and variables."""
    own = config.raw.get("env")
    words = [word for word in config.args if not word.startswith(("-", "."))]
    package = words[:1] if config.command.rpartition("/")[2] in _RUNNERS else []  # a folder of its name is not meant
    found = [cwd] if config.cwd else []
    for text in config.args:
        found += _find_path(text, cwd) or ([] if text in package else _find_words(text, cwd))
    for name in own if isinstance(own, Mapping) else ():
        found += _find_path(config.env.get(name, ""), cwd)
    return Allowance(write=tuple(map(str, found)))


def _find_path(text: str, cwd: Path) -> list[Path]:
    text = unquote(text) if "file://" in text else re.sub(_OF_HOME, lambda _: str(Path.home()), text)
    match = re.search(_PATH, text)
    path = Path(match[1]) if match else cwd / text
    if re.fullmatch(DATABASE, path.name) and not is_loose_database(path):  # it may be yet to be made
        path = path.parent
    return [path] if (match or "/" in text) and not re.fullmatch(SCRIPT, text) and os.path.exists(path) else []


def _find_words(text: str, cwd: Path) -> list[Path]:
    """Paths of which an argument is a list, if each exists; one without a slash is a folder."""
    words = re.split("[,:]", re.sub(_OF_HOME, lambda _: str(Path.home()), text).rpartition("=")[2])
    are_paths = all(os.path.exists(cwd / word) if "/" in word else os.path.isdir(cwd / word) for word in words)
    return [cwd / word for word in words] if are_paths and all(words) and not re.fullmatch(SCRIPT, text) else []


def _choose_cwd(config: ServerConfig, cwd: Path, folder: PrivateFolder) -> str:
    """Choose its home, unless a word of its entry means something in the gateway's working directory."""
    words = [word for word in (config.command, *config.args) if word and not os.path.isabs(word)]
    if config.cwd or any(os.path.exists(cwd / word) for word in words):
        return str(cwd)
    return str(folder.path)


class Carving:
    """Folders without the entries that nobody means by naming them.

    Args:
        home: The user's: of a folder that holds it, what programs keep there is left out.
        guarded: Never reached.

    Attributes:
        listed: Folders of which only a file was left out, so that their entries may be listed.
    """

    def __init__(self, home: Path, guarded: Iterable[Path]) -> None:
        self._home = home.resolve()
        self._guarded = {kind for path in guarded for kind in (path.resolve(), path.absolute())}
        self._above_guarded = {above for path in self._guarded for above in path.parents}
        self._above_home = {self._home, *self._home.parents}
        self.listed: list[str] = []

    def each(self, paths: Iterable[Path]) -> Iterator[str]:
        """The paths, of a folder with something to leave out the rest of its entries."""
        for path in paths:
            yield from self._carve(path.resolve(), is_named=True)

    def system(self) -> Iterator[str]:
        """List what every program reads, without what is guarded."""
        for path in SYSTEM:
            if Path(path).resolve() in self._above_guarded:
                yield from self.each([Path(path)])
            else:
                yield path

    def _carve(self, path: Path, *, is_named: bool) -> Iterator[str]:
        if not self._guarded.isdisjoint((path, *path.parents)):
            return
        if not is_named and path.parent == self._home and re.fullmatch(OF_PROGRAMS, path.name):
            return
        is_above_home = path in self._above_home
        if not (is_above_home or path in self._above_guarded) or not os.path.isdir(path):
            yield str(path)
            return
        if not is_above_home and not self._holds_guarded_folder(path):
            self.listed.append(str(path))
        for entry in sorted(path.iterdir()):
            if not entry.is_symlink():
                yield from self._carve(entry, is_named=False)

    def _holds_guarded_folder(self, path: Path) -> bool:
        return any(path in guarded.parents and guarded.is_dir() for guarded in self._guarded)


def _resolve(paths: Iterable[str], home: Path, cwd: Path) -> Iterator[Path]:
    for path in paths:
        yield home / path.removeprefix("~").lstrip("/") if path.startswith("~") else cwd / path


def _drop_led_out(paths: Iterable[Path], changed: Sequence[Path]) -> Iterator[Path]:
    """Leave out paths behind a link that may be the server's: out of a folder that it may change.

    Args:
        paths: Named by the entry.
        changed: Folders that the server may change.
    """
    for path in paths:
        links = [step for step in (path, *path.parents) if step.is_symlink()]
        if not any(
            folder == link.parent.resolve() or folder in link.parent.resolve().parents
            for link in links
            for folder in changed
            if not link.resolve().is_relative_to(folder)
        ):
            yield path


def _find_own_package(
    config: ServerConfig, environ: Mapping[str, str], home: Path, cwd: Path, changed: Sequence[Path]
) -> Iterator[Path]:
    """The program, what it is installed with, and the project of a script."""
    if config.isolation.mode != "container":  # that has an image with programs
        command = str(cwd / config.command) if "/" in config.command else config.command
        yield from _find_programs(command, environ.get("PATH", ""), home, changed)
    yield from _find_projects(config, home, cwd, changed)


def _find_projects(config: ServerConfig, home: Path, cwd: Path, changed: Sequence[Path]) -> Iterator[Path]:
    scripts = (cwd / word for word in list_scripts(config))
    for script in _drop_led_out(filter(os.path.isfile, scripts), changed):
        yield find_project(script.resolve(), home)


def _find_programs(command: str, path: str, home: Path, changed: Sequence[Path]) -> Iterator[Path]:
    program = Path(shutil.which(command, path=path) or command)
    real, shared = program.resolve(), (home, *home.parents)
    for folder in (program.parent, *(Path(each) for each in path.split(os.pathsep) if each)):
        if folder.resolve() not in shared:
            yield folder
            yield from _find_installation(folder.resolve(), home, changed)
    for named in _drop_led_out([program], changed):
        yield named
        if PACKAGES in real.parts:  # npm puts a link to a package's program beside the packages
            yield find_project(real, home)
    yield from _find_installation(real.parent, home, changed)


def _find_installation(folder: Path, home: Path, changed: Sequence[Path]) -> Iterator[Path]:
    """The installation of a folder of programs: an environment with its Python, a version of node."""
    root = folder.parent
    is_shared = root in (home, home / ".local", home / ".cargo", *home.parents)
    if folder.name != "bin" or is_shared or not any(map(any, map(root.glob, INSTALLATION_MARKS))):
        return
    yield root
    if any(root.is_relative_to(folder) for folder in changed):
        return  # what it says about other folders may be the server's words
    yield from _find_linked_sources(root)
    settings = root / "pyvenv.cfg"
    if os.path.isfile(settings):
        for line in settings.read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "home":
                base = Path(value.strip()).resolve()
                yield from (base.parent,) if base.name == "bin" else ()


def _find_linked_sources(root: Path) -> Iterator[Path]:
    """Folders that packages of a Python stand in which were installed to be edited."""
    for packages in root.glob("lib/python*/site-packages"):
        for file in (*packages.glob("*.pth"), *packages.glob("__editable__*.py")):
            found = re.finditer(_LINKED_PATH, file.read_text("utf-8", "replace"))
            yield from (Path(each[1]) for each in found if os.path.isdir(each[1]))


def _find_named_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Certificates, local package folders and runtimes that variables name."""
    for name, text in environ.items():
        if re.fullmatch(FILE_VARIABLE, name):
            yield from (Path(word.removeprefix("file://")) for word in text.split() if "/" in word[:8])


def _lacks(path: Path, secret: bytes) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(_MOST_BYTES + 1)
    except OSError:
        return False
    return len(head) <= _MOST_BYTES and not re.search(secret, head)


def _is_socket(path: Path) -> bool:
    with suppress(OSError):
        return path.is_socket()
    return False
