"""Review of a server's entry by its user before it may run."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from smart_mcp_proxy.servers.dialects import ADDRESS_KEYS
from smart_mcp_proxy.servers.edit_masks import mask_entry
from smart_mcp_proxy.servers.expand import references
from smart_mcp_proxy.servers.isolation import find_project, find_script, makes_container
from smart_mcp_proxy.servers.runner_options import find_unlisted

_STEERING = (
    r"NODE_OPTIONS|NODE_PATH|LD_.*|DYLD_.*|PYTHON.*|PERL5.*|RUBY.*|JAVA_TOOL_OPTIONS|PATH|BASH_ENV|ENV|"
    r"NPM_CONFIG_.*|UV_.*|PIP_.*|DOCKER_.*|CONTAINERS?_.*|NUGET_.*|DOTNET_.*"
)
"""Variables by which a trusted program is made to load or start something else, and package managers to fetch it."""

_ABSOLUTE = r"(?:^|=|://)[/~]"


def mask_unless_quarantined(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry for its user's own eyes: a quarantined one in full, any other as `mask_entry`.

    A mask would hide from whoever approves it what somebody else has put there: a file's content in a header as well
    as another account's token in the place of the user's own.
    """
    return dict(entry) if _waits(entry) else mask_entry(entry)


def warnings_about(entry: Mapping[str, Any]) -> list[str]:
    """Warnings about an entry that waits for approval, a sentence each; none about others."""
    if not _waits(entry):
        return []
    env = entry.get("env")
    steering = [
        f"The variable {name} can make the program load or start something else: look at its value."
        for name in (*(env if isinstance(env, Mapping) else ()), *_list_inherit_names(entry))
        if re.fullmatch(_STEERING, name.upper())
    ]
    return [*steering, *_describe_options(entry), *_describe_disclosures(entry), *_describe_reach(entry)]


def _waits(entry: Mapping[str, Any]) -> bool:
    return entry.get("quarantined") is True


def _describe_options(entry: Mapping[str, Any]) -> Iterator[str]:
    command, args = entry.get("command"), entry.get("args")
    if isinstance(command, str) and isinstance(args, list):
        for option in find_unlisted(command, [str(word) for word in args]):
            yield f"The option {option!r:.100} of {command} can change what is fetched or what the server may reach."


def _describe_disclosures(entry: Mapping[str, Any]) -> Iterator[str]:
    """Files, variables and stored secrets of this machine that the server would get."""
    address = next((str(entry[key]) for key in ADDRESS_KEYS if entry.get(key)), "")
    where = f"is given to the program {address!r}" if entry.get("command") else f"is sent to {address!r}"
    for name in _list_inherit_names(entry):
        yield f"inherit names the environment variable {name}: once you approve, what it holds {where}."
    for field, text in _texts(entry, ""):
        for source in references(text):
            yield f"{field} refers to {source}: once you approve, what it holds {where}."
    oauth = entry.get("oauth")
    if isinstance(oauth, Mapping) and (path := oauth.get("assertion_file")):
        to = oauth.get("idp_token_endpoint") or oauth.get("issuer") or "the authorization server that the server names"
        yield f"oauth.assertion_file names the file {path}: once you approve, the token in it is sent to {to}."


def _describe_reach(entry: Mapping[str, Any]) -> Iterator[str]:
    """Describe how the server would be held, and paths that it names without being let to them."""
    if not entry.get("command"):
        return
    written = entry.get("isolation")
    isolation = written if isinstance(written, Mapping) else {"mode": written}
    mode = isolation.get("mode")
    if isinstance(mode, str) and mode.lower() == "none":
        yield 'isolation is "none": it would run with your rights, read your keys and be able to approve itself.'
    if isolation.get("image"):
        yield f"isolation.image is {isolation['image']!r}: it would run in a container of that image."
    inner = isolation.get("allow")
    allow = entry.get("allow") if inner is None else inner
    if not isinstance(allow, Mapping):
        return
    for key, deed in (("read", "read"), ("write", "read and change")):
        for path in allow.get(key) or ():
            yield f"allow.{key} names {path}: once you approve, the server may {deed} it and all that is in it."
    if network := allow.get("network"):
        hosts = ", ".join(map(str, network)) if isinstance(network, list) else "all hosts"
        yield f"allow.network names {hosts}: once you approve, the server may open connections to them."
    args = entry.get("args")
    words = [str(entry["command"]), *map(str, args if isinstance(args, list) else ())]
    if not makes_container(words[0], words[1:], entry.get("env") or ()):
        yield from _describe_paths(entry, words, is_closed=not allow)


def _describe_paths(entry: Mapping[str, Any], words: list[str], *, is_closed: bool) -> Iterator[str]:
    cwd, script = str(entry.get("cwd") or entry.get("working_dir") or ""), find_script(words)
    is_known = not script or "${" not in script + cwd
    file = _follow(os.path.join(cwd or ".", script))
    project = find_project(file, _follow("~")) if script and is_known else None
    if script:
        once = "" if file.is_file() else ", once it is there"
        place = project or "the project around it"
        yield f"{script} is the program's own script{once}: the server reads {place}, with all that is in it."
    if is_closed and is_known:
        yield from _describe_closed_paths(entry, project)


def _describe_closed_paths(entry: Mapping[str, Any], project: Path | None) -> Iterator[str]:
    for field, text in _texts({key: entry.get(key) for key in ("args", "cwd", "env")}, ""):
        found = re.search(_ABSOLUTE, text)
        if found and not (project and _follow(text[found.end() - 1 :]).is_relative_to(project)):
            yield f"{field} names {text}: it is not open to the server; to let it, say mcpproxy server allow."


def _follow(path: str) -> Path:
    """The place that a path leads to, whatever stands in it."""
    return Path(os.path.realpath(os.path.expanduser(path.replace("\0", ""))))


def _list_inherit_names(entry: Mapping[str, Any]) -> list[str]:
    names = entry.get("inherit")
    return [str(name) for name in names] if isinstance(names, list) else []


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """Every text of an entry and the field that it stands in."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, f"{field}.{key}".lstrip("."))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _texts(inner, f"{field}[{place}]")
