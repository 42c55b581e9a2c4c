"""Edits of the configured servers by author; every one ends up in the user's own file."""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import msgspec

from smart_mcp_proxy.errors import ConfigError, ConflictError, RefusedError, RequestError, ServerNotFoundError
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers.config import ServerFile
from smart_mcp_proxy.servers.dialects import is_switch, off_keys
from smart_mcp_proxy.servers.edit import is_same
from smart_mcp_proxy.servers.edit_file import Entries, ServerFileContents, change_entries, read_list
from smart_mcp_proxy.servers.edit_masks import mask_entry, unmask_entry
from smart_mcp_proxy.servers.entry import BY_AGENT
from smart_mcp_proxy.servers.jsonc import JsonObject, parse_jsonc
from smart_mcp_proxy.servers.load import extract_named_entries, load_configured_servers, parse_named
from smart_mcp_proxy.settings import Settings

Author = Literal["agent", "web", "operator"]
"""Author of a change of servers: an agent, a holder of the operator's token over HTTP, the user at the command line.

What the first two add or lead elsewhere starts in quarantine, and what the first enables after the last two disabled
it; the last two lift it.
"""

_OWN_KEYS = frozenset({"quarantined", "trust", "approvals", "input_requests", "connection"})
"""Keys that say whether a server is trusted: set by the user's own hand alone."""
_NAMING_KEYS = frozenset({"command", "args", "cwd", "env"})
"""Keys that name paths that a confined server may use, where its entry has no `allow`."""
_HARMLESS_KEYS = frozenset({"timeout", "pin"})
"""Keys that an agent may change of a trusted server, beside switches: anything else decides what runs, where data goes,
or what is kept from the agent."""
SERVER_NAME = r"[A-Za-z0-9@][A-Za-z0-9@._/ -]{0,63}"
"""Names of servers that are added. The user's own file may have others; but names that look alike, or only exist to
confuse a reader, come from elsewhere."""
_RESERVED = frozenset({"mcpproxy", "smart-mcp-proxy"})
_FILE_KEYS = frozenset({"mcpservers", "servers", "profiles"})
"""Keys at the top level of a server file, where servers may stand as well."""
_NOT_ALPHANUMERIC = r"[^a-z0-9]+"
_NEAR = 3
_NAME_CHARS = 100


class ServerEdit(msgspec.Struct, frozen=True):
    """Outcome of an edit.

    Attributes:
        name: The server.
        changed: Fields that are different now, by path; no values.
        entry: The server's entry as it is now, secrets masked; None where it is gone.
        revision: Of the file now.
        is_quarantined: Whether the server waits for its user.
        warnings: What else its owner should know, a sentence each.
    """

    name: str
    changed: tuple[str, ...]
    entry: Mapping[str, Any] | None
    revision: str
    is_quarantined: bool = False
    warnings: tuple[str, ...] = ()


class ServerImport(msgspec.Struct, frozen=True):
    """Outcome of an import.

    Attributes:
        added: The servers that are new.
        skipped: Why each of the others was left out, by name.
        revision: Of the file now.
        is_quarantined: Whether the new servers wait for their user.
    """

    added: tuple[str, ...]
    skipped: Mapping[str, str]
    revision: str
    is_quarantined: bool


class ServerEdits:
    """Changes to the user's server file. Each one reads and writes files: run it in a thread.

    Args:
        settings: Name the file, and say what is allowed.
        cwd: The other place where the file is looked for.
    """

    def __init__(self, settings: Settings, cwd: Path) -> None:
        self._settings = settings
        self._cwd = cwd

    def read(self) -> ServerFileContents:
        """Read the file as it is now, secrets included."""
        return read_list(self._settings, self._cwd)

    def load(self) -> ServerFile:
        """The usable servers that the file names.

        Raises:
            ConfigError: It cannot be read.
        """
        return load_configured_servers(self._settings, self._cwd)

    def add(self, name: str, entry: Mapping[str, Any], by: Author, *, based_on: str | None = None) -> ServerEdit:
        """Adds a server; one that the user does not add by hand starts in quarantine.

        Raises:
            ConflictError: The name is taken, or the file has another revision.
            RequestError: Name or entry cannot be used.
            RefusedError: Not allowed.
        """
        self._require("add", by)

        def change(entries: Entries) -> Entries:
            return {**entries, name: self._new_entry(name, entry, entries, by)}

        return self._change(name, change, based_on)

    def patch(self, name: str, patch: Mapping[str, Any], by: Author, *, based_on: str | None = None) -> ServerEdit:
        """Merges a change into an entry; masks in it stand for what is stored.

        Raises:
            ServerNotFoundError: There is no such server.
            ConflictError: The file has another revision.
            RequestError: The result cannot be used.
            RefusedError: Not allowed.
        """
        return self._edit(name, lambda entry: merge(entry, _extend_switch_patch(entry, patch)), by, based_on)

    def replace(self, name: str, entry: Mapping[str, Any], by: Author, *, based_on: str | None = None) -> ServerEdit:
        """Makes this the whole entry of a server that there is; raises what `patch` does."""
        return self._edit(name, lambda old: _whole(old, entry, by), by, based_on)

    def switch(self, name: str, by: Author, *, is_enabled: bool, based_on: str | None = None) -> ServerEdit:
        """Enables or disables a server; raises what `patch` does.

        One that an agent enables waits for its user, unless an agent had disabled it.
        """
        return self.patch(name, {"disabled": None if is_enabled else True, "enabled": None}, by, based_on=based_on)

    def approve_server(self, name: str, by: Author, *, based_on: str | None = None) -> ServerEdit:
        """Lifts a server's quarantine; raises what `patch` does."""
        if by == "agent":
            raise RefusedError(
                f"An agent cannot approve a server, {name[:_NAME_CHARS]!r} included.",
                hint=f"Its user can, with: mcpproxy server approve {shell_word(name[:_NAME_CHARS])}",
                code="operator_only",
            )
        return self._edit(name, lambda entry: merge(entry, {"quarantined": None}), "operator", based_on)

    def remove(self, name: str, by: Author, *, based_on: str | None = None) -> ServerEdit:
        """Removes a server.

        Raises:
            ServerNotFoundError: There is no such server.
            ConflictError: The file has another revision.
            RefusedError: Not allowed.
        """
        self._require("remove", by)

        def change(entries: Entries) -> Entries:
            require_named(name, entries)
            return {other: entry for other, entry in entries.items() if other != name}

        return self._change(name, change, based_on)

    def import_text(self, text: str, by: Author) -> ServerImport:
        """Add the servers that a client's configuration names, where usable and not there yet.

        Args:
            text: JSON of any client: `mcpServers`, `servers`, a list, or the entries alone.
            by: Who asks.

        Raises:
            RequestError: The text is no list of servers.
            RefusedError: Not allowed.
        """
        self._require("add", by)
        found = _parse_pasted_entries(text)
        skipped: dict[str, str] = {}
        added: list[str] = []

        def change(entries: Entries) -> Entries:
            skipped.clear()
            added.clear()
            for name, entry in found.items():
                try:
                    entries = {**entries, name: self._new_entry(name, entry, entries, by)}
                except (RequestError, RefusedError) as error:
                    skipped[name] = str(error)
                else:
                    added.append(name)
            return entries

        after = change_entries(self._settings, self._cwd, change)
        return ServerImport(tuple(added), skipped, after.revision, bool(added) and by != "operator")

    # --- the rules

    def _require(self, what: Literal["add", "remove", "change"], by: Author) -> None:
        """Passes if changes of this kind are allowed at all."""
        if self._settings.read_only:
            raise RefusedError(
                "The servers cannot be changed: MCPPROXY_READ_ONLY is set.",
                hint="Whoever runs the gateway can unset it and restart.",
                code="read_only",
            )
        flags = {"add": self._settings.allow_server_add, "remove": self._settings.allow_server_remove}
        if by == "agent" and not flags.get(what, True):
            raise RefusedError(
                f"Agents may not {what} servers: MCPPROXY_ALLOW_SERVER_{what.upper()} is false.",
                hint=f"Ask the user to do it: mcpproxy server {what}",
                code="operator_only",
            )

    def _new_entry(self, name: str, entry: Any, entries: Entries, by: Author) -> dict[str, Any]:
        """The entry of a server that is added; the checks of `add`."""
        _check_name(name, entries)
        if not isinstance(entry, Mapping):
            raise RequestError(f"Server {name!r} is not described by an object.", hint="Write it as {...}.")
        whole = unmask_entry({key: value for key, value in entry.items() if value is not None and key != "name"}, {})
        _refuse_own_keys({}, whole, by)
        if by != "operator":
            whole["quarantined"] = True
        if whole.get("quarantined") is True and "command" in whole:
            _close_named_paths(whole)
        _check_entry(name, whole)
        return whole

    def _edit(
        self, name: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]], by: Author, based_on: str | None
    ) -> ServerEdit:
        self._require("change", by)

        def apply_change(entries: Entries) -> Entries:
            require_named(name, entries)
            old = entries[name] if isinstance(entries[name], Mapping) else {}
            new = unmask_entry(change(old), old)
            if is_same(old, new):
                return entries
            if not is_same(old.get("name"), new.get("name")):
                raise RequestError(f"Server {name!r} cannot be renamed.", hint="Add it anew and remove the old one.")
            return {**entries, name: _guard_entry_change(name, old, new, by)}

        return self._change(name, apply_change, based_on)

    def _change(self, name: str, change: Callable[[Entries], Entries], based_on: str | None) -> ServerEdit:
        seen: list[Entries] = []

        def record_and_change(entries: Entries) -> Entries:
            seen.append(entries)
            return change(entries)

        after = change_entries(self._settings, self._cwd, record_and_change, based_on=based_on)
        old, new = seen[-1].get(name), after.entries.get(name)
        return ServerEdit(
            name=name,
            changed=tuple(list_changed_fields(_coerce_entry(old), _coerce_entry(new))),
            entry=None if new is None else mask_entry(new),
            revision=after.revision,
            is_quarantined=_coerce_entry(new).get("quarantined") is True,
            warnings=() if new is None else _check_entry(name, new),
        )


def require_named(name: str, entries: Mapping[str, Any]) -> None:
    """Passes if there is a server of that name.

    Raises:
        ServerNotFoundError: There is none; the hint has the names that are close.
    """
    if name in entries:
        return
    near = get_close_matches(name, entries, n=_NEAR, cutoff=0.5)
    known = ", ".join(near or sorted(entries)[:20]) or "none"
    hint = f"{'Close' if near else 'Known'}: {known}. Add it with: mcpproxy server add"
    raise ServerNotFoundError(f"Server {name[:_NAME_CHARS]!r} is not configured.", hint=hint)


def _coerce_entry(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _whole(old: Mapping[str, Any], entry: Mapping[str, Any], by: Author) -> Mapping[str, Any]:
    """The entry that replaces another: what only the user sets stays where somebody else leaves it out."""
    kept = {key: old[key] for key in (*_OWN_KEYS, "name") if key in old and (by != "operator" or key == "name")}
    return {**kept, **{key: value for key, value in entry.items() if value is not None}}


def _guard_entry_change(name: str, old: Mapping[str, Any], new: dict[str, Any], by: Author) -> dict[str, Any]:
    """The changed entry, in quarantine where its author may not decide what runs."""
    _refuse_own_keys(old, new, by)
    if by == "agent" and any(bool(old.get(key)) != bool(new.get(key)) for key in ("command", "url")):
        raise RefusedError(
            f"Server {name!r} cannot be turned from a program into an address, or the other way, by an agent.",
            hint="Add it under another name; its user approves it.",
            code="operator_only",
        )
    if by == "agent":
        _mark_agents_switch(name, old, new)
    touched = {key for key in old.keys() | new.keys() if not is_same(old.get(key), new.get(key))}
    is_started = by == "agent" and _is_enabled_anew(name, old, new)
    harmful = [key for key in touched - _HARMLESS_KEYS if not is_switch(key)]
    if is_started or (by != "operator" and harmful):
        new["quarantined"] = True
        if touched & _NAMING_KEYS and "command" in new:
            _close_named_paths(new)
    _check_entry(name, new)
    return new


def _close_named_paths(entry: dict[str, Any]) -> None:
    """Leave paths that somebody else has named proposed, not open."""
    if _coerce_entry(entry.get("isolation")).get("allow") is None:
        entry.setdefault("allow", {})


def _refuse_own_keys(old: Mapping[str, Any], new: Mapping[str, Any], by: Author) -> None:
    if by == "operator":
        return
    for key in sorted(_OWN_KEYS):
        if not is_same(old.get(key), new.get(key)):
            raise RefusedError(
                f"{key!r} is set by the user alone, at the command line or in the server file.",
                hint="Leave it out. A quarantine is lifted with: mcpproxy server approve NAME",
                code="operator_only",
            )


def _check_name(name: str, entries: Mapping[str, Any]) -> None:
    """Passes for the name of a server that can be added.

    Source: docs/design/protocol-surface.md#names-and-addresses-that-are-refused
    """
    if name in entries:
        raise ConflictError(
            f"Server {name!r} is configured already.",
            hint=f"Change it with: mcpproxy server patch {shell_word(name)}",
            code="server_exists",
        )
    if not re.fullmatch(SERVER_NAME, name) or ".." in name or "__" in name or name.endswith((" ", "/")):
        raise RequestError(
            f"{name[:_NAME_CHARS]!r} cannot be the name of a server.",
            hint="Use up to 64 letters, digits, spaces and . _ - / @, beginning with a letter or digit, without '..' "
            "and '__'.",
        )
    if name.casefold() in _RESERVED:
        raise RequestError(f"{name!r} is the gateway's own name.", hint="Use another one.")
    if name.casefold() in _FILE_KEYS:
        raise RequestError(f"{name!r} is a heading of the server file.", hint="Use another name.")
    looks = {_look(other): other for other in entries}
    if (other := looks.get(_look(name))) is not None:
        raise ConflictError(
            f"{name!r} is easily taken for the configured server {other!r}.",
            hint="Use a name that differs in more than case and punctuation.",
            code="server_exists",
        )


def _look(name: str) -> str:
    return re.sub(_NOT_ALPHANUMERIC, "-", name.casefold())


def _check_entry(name: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Warnings about an entry.

    Raises:
        RequestError: It cannot be used.
    """
    try:
        _, problems = parse_named(name, JsonObject(list(entry.items())))
    except ConfigError as error:
        raise RequestError(error.message, hint=error.hint, code="invalid_entry") from error
    return tuple(map(str, problems))


def _parse_pasted_entries(text: str) -> dict[str, Any]:
    """The servers that a text names, also where it is the inner part of a client's file."""
    stripped = text.strip()
    whole = f"{{{stripped}}}" if stripped.startswith('"') else stripped
    try:
        document = parse_jsonc(whole.encode("utf-8", "surrogatepass"), "the text")
        if isinstance(document, Mapping) and isinstance(document.get("mcp"), JsonObject):
            document = document["mcp"]  # VS Code's settings.json
        found = extract_named_entries(document, "the text")
    except ConfigError as error:
        raise RequestError(error.message, hint=error.hint, code="invalid_entry") from error
    if not found:
        raise RequestError(
            "The text names no servers.", hint='Expected {"mcpServers": {"NAME": {...}}}.', code="invalid_entry"
        )
    return found


def _is_off(name: str, entry: Mapping[str, Any]) -> bool:
    """Whether a server is not started: disabled, or not to be used at all."""
    try:
        return parse_named(name, JsonObject(list(entry.items())))[0].disabled
    except ConfigError:
        return True


def _extend_switch_patch(entry: Mapping[str, Any], patch: Mapping[str, Any]) -> Mapping[str, Any]:
    """The patch, which takes out the keys of other programs as well where it switches a server on."""
    is_on = ("disabled" in patch and not patch["disabled"]) or patch.get("enabled") is True
    foreign = [key for key in off_keys(entry) if key not in ("disabled", "enabled")] if is_on else []
    return {**dict.fromkeys(foreign), **patch}


def _is_enabled_anew(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a change starts a server that its user had switched off, or that could not be used."""
    return _is_off(name, old) and not _is_off(name, new) and not _was_agents_switch(name, old)


def _mark_agents_switch(name: str, old: Mapping[str, Any], new: dict[str, Any]) -> None:
    """Record in an entry who keeps it switched off, its user or an agent."""
    if new.get("disabled") == BY_AGENT and old.get("disabled") != BY_AGENT:
        new["disabled"] = True  # the mark is ours to set
    if not _is_off(name, old) and new.get("disabled") is True:
        new["disabled"] = BY_AGENT


def _was_agents_switch(name: str, entry: Mapping[str, Any]) -> bool:
    """Whether an agent's switch is all that keeps the server off."""
    others = {key: value for key, value in entry.items() if key != "disabled"}
    return entry.get("disabled") == BY_AGENT and not _is_off(name, others)


def merge(entry: Any, patch: Any) -> Any:
    """The entry with a change merged into it; neither is modified.

    Objects merge key by key at any depth, null removes a key, arrays and everything else replace what was there.

    Source: RFC 7396; docs/design/protocol-surface.md#merging-a-change
    """
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(entry) if isinstance(entry, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def list_changed_fields(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Names of the fields that differ, with their path (`env.TOKEN`), sorted; no values."""
    names: list[str] = []
    for key in old.keys() | new.keys():
        if key not in old or key not in new:
            present = new.get(key, old.get(key))
            names += _leaves(present, prefix + key)
        elif isinstance(old[key], Mapping) and isinstance(new[key], Mapping):
            names += list_changed_fields(old[key], new[key], f"{prefix}{key}.")
        elif not is_same(old[key], new[key]):
            names.append(prefix + key)
    return sorted(names)


def _leaves(value: Any, name: str) -> list[str]:
    """A field by its name, an object by the names of what it holds."""
    return list_changed_fields({}, value, f"{name}.") if isinstance(value, Mapping) and value else [name]
