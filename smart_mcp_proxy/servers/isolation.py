"""Isolation of servers' processes, as their entries say it and where they say nothing."""

import hashlib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self, get_args

from msgspec.structs import replace

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.servers.config import Allowance, Isolation, IsolationMode, ServerConfig
from smart_mcp_proxy.servers.fields import EntryReader
from smart_mcp_proxy.servers.runner_options import count_run_words, has_unlisted

ENGINES: Final = ("docker", "podman", "nerdctl")
"""Programs that start containers."""
_ENGINE_FOLDERS: Final = ("", "/usr/bin", "/usr/local/bin", "/bin", "/snap/bin", "/opt/homebrew/bin", "/opt/podman/bin")
"""Folders of these: in another folder a program may only be called so."""
_OBJECT_KEYS: Final = frozenset({"enabled", "mode", "image", "network_mode", "allow"})
_ALLOW_KEYS: Final = frozenset({"read", "write", "network"})
NETWORK_HINT: Final = (
    'Write hosts like "api.github.com", "*.example.com" or, on this machine, "127.0.0.1:5432"; true opens all.'
)
_LAST_PORT: Final = 65_535
_NO_NETWORK: Final = "none"
_IMAGE: Final = r"[A-Za-z0-9][\w.:/@-]*"
"""Never an option of the engine."""

_HOST: Final = r"(?a)(?P<name>(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(?::(?P<port>[1-9][0-9]{0,4}))?"
DATABASE: Final = r".+\.(?:db|sqlite3?|duckdb)$"
"""Databases write beside themselves."""
SCRIPT: Final = r".+\.(?:py|js|mjs|cjs|ts|mts|sh|rb|jar|php|pl|wasm)$"
_PROJECT_MARKS: Final = ("package.json", "pyproject.toml", "node_modules", "setup.py", "deno.json", "go.mod", ".venv")
PACKAGES: Final = "node_modules"
_MOST_PARENTS: Final = 4
_OF_THIS_MACHINE: Final = r"localhost|.*\.localhost|127\..*|::1"

IsolationDefault = Literal["auto", "none", "sandbox", "container"]
"""`auto`: a sandbox for servers that the catalog has not seen before, where the system has one."""


class NetworkHost(NamedTuple):
    """Host that a confined server may connect to.

    Attributes:
        name: Lower case, an address without brackets; all names below it if it begins with `*.`.
        port: 0 for all.
    """

    name: str
    port: int

    @classmethod
    def read(cls, text: str) -> Self:
        """The host that an entry names.

        Raises:
            ValueError: It is none, or of this machine without a port.
        """
        match = re.fullmatch(_HOST, text.lower())
        if match is None or int(match["port"] or 0) > _LAST_PORT:
            raise ValueError(text)
        host = cls(match["name"].strip("[]"), int(match["port"] or 0))
        if host.is_here and not host.port:  # programs ask no proxy for it: it is opened at its own place
            raise ValueError(text)
        return host

    @property
    def is_here(self) -> bool:
        """Whether it is an address of this machine alone."""
        return re.fullmatch(_OF_THIS_MACHINE, self.name) is not None

    def covers(self, name: str, port: int) -> bool:
        """Whether it is this host, or one below it."""
        is_below = self.name.startswith("*.") and name.endswith(self.name[1:])
        return (name == self.name or is_below) and self.port in (0, port)


def read_isolation(entry: EntryReader) -> Isolation:
    """The isolation that an entry asks for.

    Raises:
        ConfigError: It asks for what there is not.

    Source: docs/isolation.md#isolation-of-servers
    """
    asked = entry.values.get("isolation")
    allow = _read_allowance(entry) if entry.values.get("allow") is not None else None
    if asked is None or asked is False:
        return Isolation(allow=allow)
    if isinstance(asked, str):
        return Isolation(_check_mode(entry, "isolation", asked), allow=allow)
    if not isinstance(asked, dict):
        raise entry.wrong("isolation", asked, "none, sandbox, container or an object")
    inner = EntryReader(entry.server, asked, "isolation.")
    if unknown := sorted(asked.keys() - _OBJECT_KEYS):
        raise ConfigError(
            f"Server {entry.server!r}: 'isolation' has keys that are not known: {', '.join(map(repr, unknown))}.",
            hint=f"Known: {', '.join(sorted(_OBJECT_KEYS))}.",
        )
    if asked.get("allow") is not None:
        if allow is not None:
            raise ConfigError(f"Server {entry.server!r} has 'allow' twice.", hint="Keep the one beside 'isolation'.")
        allow = _read_allowance(inner)
    if inner.text("network_mode") == _NO_NETWORK:
        allow = replace(allow or Allowance(), network=False)
    if not inner.flag("enabled", default=True):
        return Isolation(allow=allow)
    mode = _check_mode(inner, "mode", inner.text("mode") or "container")
    if (image := inner.text("image")) and not re.fullmatch(_IMAGE, image):
        raise ConfigError(
            f"Server {entry.server!r}: 'isolation.image' is {image!r:.80}.", hint='Write it like "node:22-slim".'
        )
    return Isolation(mode, image, allow)


def _check_mode(entry: EntryReader, key: str, written: str) -> IsolationMode:
    modes: tuple[IsolationMode, ...] = get_args(IsolationMode)
    found = next((mode for mode in modes if mode == written.lower()), None)
    if found is None:
        raise ConfigError(
            f"Server {entry.server!r}: '{entry.prefix}{key}' is {written!r:.40}.",
            hint=f"Expected one of {', '.join(modes)}.",
        )
    return found


def _read_allowance(entry: EntryReader) -> Allowance:
    given = EntryReader(entry.server, entry.read_object("allow"), f"{entry.prefix}allow.")
    if unknown := sorted(given.values.keys() - _ALLOW_KEYS):
        raise ConfigError(
            f"Server {entry.server!r}: '{entry.prefix}allow' has keys that are not known: "
            f"{', '.join(map(repr, unknown))}.",
            hint=f"Known: {', '.join(sorted(_ALLOW_KEYS))}.",
        )
    asked = given.values.get("network")
    if not isinstance(asked, bool | list | None):
        raise given.wrong("network", asked, "true, false or a list of hosts")
    network = _read_hosts(given) if isinstance(asked, list) else given.flag("network", default=True)
    return Allowance(given.texts("read"), given.texts("write"), network)


def _read_hosts(given: EntryReader) -> tuple[str, ...] | bool:
    hosts = given.texts("network")
    for host in hosts:
        try:
            NetworkHost.read(host)
        except ValueError:
            raise ConfigError(
                f"Server {given.server!r}: '{given.prefix}network' names {host!r:.80}.", hint=NETWORK_HINT
            ) from None
    return hosts or False


def identify_program(config: ServerConfig) -> str:
    """Return a digest of the program that an entry starts; another program is another server."""
    words = "\0".join((config.command, *config.args))
    return hashlib.sha256(words.encode()).hexdigest()


def isolate(
    servers: Mapping[str, ServerConfig], default: IsolationDefault, known: Mapping[str, str]
) -> dict[str, ServerConfig]:
    """The servers, each with the isolation that holds for it.

    Args:
        servers: As configured.
        default: Of those whose entry says nothing.
        known: Programs that ran before there was a sandbox, by server; empty for whatever its entry starts.
    """
    return {name: _isolate(config, default, known) for name, config in servers.items()}


def _isolate(config: ServerConfig, default: IsolationDefault, known: Mapping[str, str]) -> ServerConfig:
    asked = config.isolation
    if config.transport != "stdio":
        mode: IsolationMode = "none"
    elif asked.mode is not None:
        return config
    elif not has_process_here(config):
        mode = "none"  # its command makes the container
    elif default != "auto":
        return replace(config, isolation=replace(asked, mode=default))
    else:
        mode = "none" if known.get(config.name) in ("", identify_program(config)) else "sandbox"
    return replace(config, isolation=replace(asked, mode=mode))


def describe_isolation(config: ServerConfig) -> str:
    """Name how a server is held; empty for one that is no process of ours."""
    if config.transport != "stdio":
        return ""
    return config.isolation.mode or "none" if has_process_here(config) else "container"


def has_process_here(config: ServerConfig) -> bool:
    """Whether a server is a process of ours: not remote, nor in a container that its command starts."""
    return config.transport == "stdio" and not makes_container(config.command, config.args, config.env)


def makes_container(command: str, args: Sequence[str], env: Collection[str]) -> bool:
    """Whether a command makes a container, where no variable of its entry leads to another program."""
    folder, _, name = command.rpartition("/")
    is_engine = name in ENGINES and folder in _ENGINE_FOLDERS and "PATH" not in env
    return is_engine and count_run_words(args) > 0


def list_scripts(config: ServerConfig) -> list[str]:
    """Scripts whose projects a server reads; where `allow` alone counts, the first that is written."""
    words = [config.command, *config.args]
    if config.isolation.allow is None:
        return [word for word in words if re.fullmatch(SCRIPT, word)]
    command, args = config.raw.get("command") or config.command, config.raw.get("args") or ()
    written = [str(command), *map(str, args)] if len(args) == len(config.args) else words
    script = find_script(written)  # as it was shown: what a variable holds may be another
    return [words[written.index(script)]] if script else []


def find_script(words: Sequence[str]) -> str:
    """Find the first script among the words of a command; empty without any."""
    return next((word for word in words if re.fullmatch(SCRIPT, word) and not word.startswith("-")), "")


def find_project(script: Path, home: Path) -> Path:
    """The folder that a script is part of; the script itself where that would be a whole home."""
    shared = [folder for folder in script.parents if folder.name == PACKAGES]
    if shared:  # what a package needs stands beside it, or further up
        return shared[-1]
    folders = [folder for folder in script.parents[:_MOST_PARENTS] if folder != home and folder not in home.parents]
    marked = (folder for folder in folders if any(os.path.exists(folder / mark) for mark in _PROJECT_MARKS))
    return next(marked, folders[0] if folders else script)


def explain_isolation(mode: str, reach: Mapping[str, Any] | None, entry: Mapping[str, Any] | None = None) -> str:
    """Say how a server is held and what of its user's it reaches.

    Args:
        mode: As `describe_isolation` names it.
        reach: The members of an `Allowance`; None where they are not known.
        entry: Its own, whose command may open what no member says.
    """
    if mode == "none":
        return "It runs unconfined, with your rights: it reads and changes what you can, and can approve itself."
    if reach is None:
        opened = ", and can reach what its options open" if has_unlisted(entry or {}) else ""
        return f"It runs in a {mode}{opened}." if mode else ""
    return f"It runs in a {mode}. {explain_reach(reach)}"


def explain_reach(reach: Mapping[str, Any]) -> str:
    """Say what of its user's a confined server reaches, by the members of an `Allowance`."""
    doings = (("change", reach["write"]), ("read", reach["read"]))
    files = " and ".join(f"{verb} {', '.join(paths)}" for verb, paths in doings if paths)
    network = reach["network"]
    hosts = "" if isinstance(network, bool) else f" to {', '.join(network)} alone"
    may = "may" if network else "may not"
    around = ", ".join(reach.get("projects", ())) or "the project"
    own = f"It reads its own program with {around} and runtimes around it."
    for path in filter(is_loose_database, map(Path, reach["write"])):
        own += f" It makes no files beside {path}, as databases do: move that to a folder of its own."
    return f"Of your files it may {files or 'reach none'}; it {may} open network connections{hosts}. {own}"


def is_loose_database(path: Path) -> bool:
    """Whether a database stands in the home itself, where no sandbox opens all for its sake."""
    return re.fullmatch(DATABASE, path.name) is not None and path.parent == Path.home()


def refuse_foreign_sandbox(entry: Mapping[str, Any], keys: tuple[str, ...], server: str) -> None:
    """Refuse an entry that asks for protection in another program's words, which we would not keep.

    Source: docs/design/protocol-surface.md#what-an-entry-asks-for-and-cannot-get
    """
    for key in keys:
        if entry.get(key):
            raise ConfigError(
                f"Server {server!r} asks for a sandbox ({key!r}), in words of another program.",
                hint=f'Remove {key!r} and write "isolation": "sandbox".',
            )
