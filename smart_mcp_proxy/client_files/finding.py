"""Servers of all known clients, found in their files without anything being started."""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal

from smart_mcp_proxy.client_files.bounds import BOUNDS, ReadBounds
from smart_mcp_proxy.client_files.clients import KNOWN_CLIENTS, KnownClient
from smart_mcp_proxy.client_files.files import ClientFile, read_client_file
from smart_mcp_proxy.client_files.ours import is_ours
from smart_mcp_proxy.client_files.places import Places
from smart_mcp_proxy.client_files.reading import Translated, translate_entry
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.servers.edit import is_same
from smart_mcp_proxy.servers.expand import references
from smart_mcp_proxy.servers.jsonc import JsonObject
from smart_mcp_proxy.servers.known import describe_known
from smart_mcp_proxy.servers.load import parse_named

Scope = Literal["user", "scoped", "project"]
"""Origin of a server: the user's own file; the part of it that is for one folder alone; a project's file."""
Standing = Literal["new", "project", "workspace", "differs", "present", "present_differs", "unusable"]
"""Whether a server can be taken over: new; only by choice, as it belongs to a project, means its client's folder, or
has the name of another one found; the gateway has it, or another one of its name; or it cannot be used at all."""
BY_CHOICE: Final[Mapping[Standing, str]] = {
    "project": "of a project, taken only if you choose it, and then quarantined",
    "workspace": "means the folder that its client is in, taken only if you choose it",
}
"""Why a server is not taken over with the others, by its standing."""


@dataclass(slots=True)
class FoundServer:
    """A server of one or more clients.

    Attributes:
        name: Its name.
        places: Clients that have exactly it, in words.
        path: The first file that names it.
        translated: Its entry in our words, with what it needs and loses.
        scope: Where it comes from; a project's file may be a stranger's.
        standing: Whether it can be taken over.
        remark: Why not, or what else there is to know.
        needs: What it cannot do without, in words.
    """

    name: str
    places: list[str]
    path: Path
    translated: Translated
    scope: Scope
    standing: Standing = "new"
    remark: str = ""
    needs: tuple[str, ...] = ()

    @property
    def is_project(self) -> bool:
        """Whether it belongs to one project."""
        return self.scope != "user"

    @property
    def preference(self) -> tuple[bool, bool, int]:
        """Sorts entries of one name: the user's own for any folder first, then by the values that they lack."""
        lacking = [need for need in self.needs if need.startswith(_VALUES)]
        return self.is_project, self.uses_workspace, len(lacking)

    @property
    def uses_workspace(self) -> bool:
        """Whether its entry means the folder that its client is in."""
        return any("${workspace" in text for text in _texts(self.translated.entry))

    @property
    def transport(self) -> str:
        """The transport, as far as the entry says it."""
        entry = self.translated.entry
        return "stdio" if "command" in entry else str(entry.get("type", "http"))


@dataclass(slots=True)
class ImportCandidates:
    """Everything that was found.

    Attributes:
        servers: The servers, in the order of the clients.
        problems: Files that could not be read, a sentence each.
    """

    servers: list[FoundServer] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def find_servers(
    places: Places, own: Mapping[str, Any], bounds: ReadBounds = BOUNDS, clock: Callable[[], float] = time.monotonic
) -> ImportCandidates:
    """The servers of all clients here, compared with those of our own server file. Reads files.

    Args:
        places: Where the clients' files are.
        own: Entries that the gateway has already.
        bounds: Within which they are read.
        clock: Seconds on a monotonic clock.
    """
    finding = ImportCandidates()
    end = clock() + bounds.time_s
    for client in KNOWN_CLIENTS:
        for path, is_project in _files(client, places):
            inside = places.project if is_project else None
            try:
                if clock() > end:
                    message = f"{path} is not read: the files before it took over {bounds.time_s:g} s."
                    raise ConfigError(message, hint="Shorten those.")
                file = read_client_file(client, path, inside=inside, bounds=bounds)
                named = list(_iterate_entries(file, is_project=is_project))
                if len(named) + len(finding.servers) > bounds.servers:
                    message = f"{path} has {len(named):,} servers; over {bounds.servers:,} in all are not looked at."
                    raise ConfigError(message, hint="Take out those you do not need.")
                for name, place, raw, scope in named:
                    _add(finding, file, name, place, raw, scope)
            except ConfigError as error:
                finding.problems.append(f"{client.title}: {error}")
            except RecursionError:
                finding.problems.append(f"{client.title}: {path} is nested too deeply. Edit it by hand.")
    for judge in (partial(_examine, environ=places.environ), partial(_judge, servers=finding.servers, own=own)):
        _judge_each(finding.servers, judge)
    return finding


def same_as_ours(file: ClientFile, own: Mapping[str, Any]) -> tuple[str, ...]:
    """The servers of a client's file that the gateway has, entry for entry."""
    names = []
    for name, raw in file.entries.items():
        found = translate_entry(file.client, name, raw, _read_questions(file), folder=file.path.parent)
        if found is not None and name in own and not is_ours(name, raw) and _is_taken(found, own[name]):
            names.append(name)
    return tuple(names)


def _files(client: KnownClient, places: Places) -> Iterator[tuple[Path, bool]]:
    """The files of a client that exist, and whether each is that of a project."""
    user_files = [path for path in places.user_files(client) if path.exists() or path.is_symlink()]
    yield from ((path, False) for path in user_files)
    project = places.project_file(client)
    if project is not None and (project.exists() or project.is_symlink()) and project not in user_files:
        yield project, True


def _iterate_entries(file: ClientFile, *, is_project: bool) -> Iterator[tuple[str, str, Any, Scope]]:
    """The entries of a file, each with its name, its place in words, and its scope."""
    title = f"{file.client.title}, this project" if is_project else file.client.title
    scope: Scope = "project" if is_project else "user"
    yield from ((name, title, raw, scope) for name, raw in file.entries.items())
    projects = file.document.get("projects") if file.client.name == "claude-code" and not is_project else None
    for folder, inner in projects.items() if isinstance(projects, Mapping) else ():
        entries = inner.get("mcpServers") if isinstance(inner, Mapping) else None
        if isinstance(entries, Mapping):
            yield from ((name, f"{title}, in {folder}", raw, "scoped") for name, raw in entries.items())


def _add(finding: ImportCandidates, file: ClientFile, name: str, place: str, raw: Any, scope: Scope) -> None:
    """Notes a server, with the same of another client in one row."""
    if is_ours(name, raw):
        return
    found = translate_entry(
        file.client, name, raw, _read_questions(file), folder=None if scope == "project" else file.path.parent
    )
    if found is None:
        # Others switch a server of the client's own on or off, and are none to take over.
        if not isinstance(raw, Mapping) or not raw.keys().isdisjoint(("command", "url")):
            message = f"entry {name!r:.60} in {file.path} has no program and no address, so it is left out. Correct it."
            finding.problems.append(f"{file.client.title}: {message}")
        return
    for server in finding.servers:
        if server.name == name and is_same(server.translated.entry, found.entry) and server.scope == scope:
            server.places.append(place)
            return
    finding.servers.append(FoundServer(name, [place], file.path, found, scope))


def _read_questions(file: ClientFile) -> dict[str, Mapping[str, Any]]:
    """The questions of VS Code's files by their id."""
    listed = file.document.get("inputs")
    objects = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    return {each["id"]: each for each in objects if isinstance(each.get("id"), str)}


def _judge_each(servers: Iterable[FoundServer], judge: Callable[[FoundServer], None]) -> None:
    for server in servers:
        try:
            judge(server)
        except RecursionError:
            server.standing, server.remark = "unusable", "its entry is nested too deeply"


def _examine(server: FoundServer, environ: Mapping[str, str]) -> None:
    """Note what a server needs, and whether it can be used at all."""
    server.needs = tuple(_needs(server.translated, environ))
    try:
        _, problems = parse_named(server.name, JsonObject(list(server.translated.entry.items())))
    except ConfigError as error:
        server.standing, server.remark = "unusable", str(error)
    else:
        server.remark = "; ".join(
            [*(problem.message for problem in problems), *_remark_on_known(server.translated.entry)]
        )


def _remark_on_known(entry: Mapping[str, Any]) -> Iterator[str]:
    if (command := entry.get("command")) and (
        known := describe_known(command, entry.get("args", ()), entry.get("env", ()))
    ):
        yield known


def _judge(server: FoundServer, servers: Iterable[FoundServer], own: Mapping[str, Any]) -> None:
    """Settle whether a server can be taken over, once all are examined."""
    if server.name in own:
        is_equal = _is_taken(server.translated, own[server.name])
        server.standing = "present" if is_equal else "present_differs"
        server.remark = "here already" if is_equal else "the gateway has another one of this name"
        return
    if server.standing == "unusable":
        return
    usable = [other for other in servers if other.name == server.name and other.standing != "unusable"]
    first = min(usable, key=attrgetter("preference"))
    reason = ""
    if server.is_project or server.uses_workspace:
        server.standing = "project" if server.is_project else "workspace"
        reason = BY_CHOICE[server.standing]
    elif first is not server:
        server.standing, reason = "differs", f"not the same as that of {first.places[0]}, taken only if you choose it"
    server.remark = "; ".join(filter(None, (reason, server.remark)))


def _is_taken(found: Translated, present: Any) -> bool:
    """Whether an entry of ours is what was found, whatever was set for it here since."""
    if not isinstance(present, Mapping):
        return False
    kept = {key: value for key, value in present.items() if key in found.entry or key in _ESSENTIAL}
    if not found.questions:
        return is_same(kept, found.entry)
    # Where the user was asked for a value, it may be kept anywhere: in the keyring, a file, a variable.
    pattern = re.escape(json.dumps(found.entry, sort_keys=True))
    for question in found.questions:
        pattern = pattern.replace(re.escape(f"${{keyring:{question.name}}}"), r"\$\{[^{}]*\}")
    return re.fullmatch(pattern, json.dumps(kept, sort_keys=True)) is not None


_ESSENTIAL = frozenset({"command", "args", "env", "url", "headers", "cwd"})


_VALUES = ("a value: ", "variable ")
"""Beginnings of needs that are for values."""
_PLAIN = re.compile(r"[\w./+@~-]{1,100}")
"""Commands that are shown; of one that holds more than a program, a secret perhaps, nothing is."""


def _needs(found: Translated, environ: Mapping[str, str]) -> Iterator[str]:
    entry = found.entry
    program = entry.get("command")
    if isinstance(program, str) and "$" not in program and shutil.which(program, path=environ.get("PATH")) is None:
        yield f"the program {program}" if _PLAIN.fullmatch(program) else "the program of its command"
    for question in found.questions:
        if question.value is None:
            yield f"{_VALUES[0]}{question.words}"
    for text in _texts(entry):
        for reference in references(text):
            kind, _, variable = reference.rpartition(" ")
            if kind == "the environment variable" and variable not in environ and f"{variable}:-" not in text:
                yield f"{_VALUES[1]}{variable}"
    if "url" in entry and not any(str(header).lower() == "authorization" for header in entry.get("headers", ())):
        yield "perhaps a sign-in"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
