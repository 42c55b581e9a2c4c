"""Client files as text: read in each language, changed in one section alone."""

import codecs
from collections.abc import Mapping
from typing import Any

from smart_mcp_proxy.client_files.bounds import BOUNDS, ReadBounds, TextFormat
from smart_mcp_proxy.client_files.clients import LIST
from smart_mcp_proxy.client_files.toml_text import edit_toml, parse_toml
from smart_mcp_proxy.client_files.yaml_text import edit_yaml, parse_yaml
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers.edit import is_same, rewrite
from smart_mcp_proxy.servers.fields import name_type
from smart_mcp_proxy.servers.jsonc import JsonObject, parse_jsonc

Changes = Mapping[str, Mapping[str, Any] | None]
"""Entries by name; None takes one out."""

_MARK = "\ufeff"


def decode(data: bytes, source: str) -> str:
    """Return the bytes of a file as text, a byte order mark included.

    Raises:
        ConfigError: They are not UTF-8.
    """
    found = _other_encoding(data)
    if found and not _is_text(data, found):  # zeros, as a crash of the machine leaves them, or another program's file
        copies = f"{shell_word(source)}.before-mcpproxy"
        hint = f"Bring back a copy of it, such as {copies}, if there is one; else move it away."
        raise ConfigError(f"{source} is no text: it begins with the bytes {data[:4].hex(' ')}.", hint=hint)
    if found:
        path = shell_word(source)
        convert = f"iconv -f {found} -t UTF-8 {path} > {path}.utf8 && mv {path}.utf8 {path}"
        hint = f"The client reads UTF-8 alone: choose that when saving it in the editor, or: {convert}"
        raise ConfigError(f"{source} is {found} text.", hint=hint)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise ConfigError(f"{source}, line {line}: the text is not UTF-8.", hint="Save it as UTF-8.") from None


def _other_encoding(data: bytes) -> str:
    """Name of the encoding that the first characters tell; empty for UTF-8 and those that have no sign."""
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    if b"\0" not in data[:2]:
        return ""
    return "UTF-16LE" if data[1:2] == b"\0" else "UTF-16BE"


def _is_text(data: bytes, encoding: str) -> bool:
    """Whether a file can be what its first bytes tell."""
    try:
        return "\0" not in data.decode(encoding)
    except UnicodeDecodeError:
        return False


def parse(text: str, language: TextFormat, source: str, bounds: ReadBounds = BOUNDS) -> Mapping[str, Any]:
    """Return the document of a client's file; an empty file is an empty one.

    Raises:
        ConfigError: It cannot be read, or is no map by names; the message holds nothing of its content.
    """
    text = text.removeprefix(_MARK)
    if not text.strip():
        return JsonObject([])
    if language == "json":
        document = parse_jsonc(text.encode("utf-8", "surrogatepass"), source, bounds.values["json"])
    elif language == "yaml":
        document = parse_yaml(text, source, bounds.values["yaml"])
    else:
        document = parse_toml(text, source)
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise _refuse_kind(source, document)
    return document


def read_section(document: Mapping[str, Any], section: tuple[str, ...], source: str) -> Mapping[str, Any]:
    """Return the entries of a section; none where it is not there.

    Raises:
        ConfigError: Something else is in its place, or a key on the way is there twice.
    """
    found: Any = document
    for step in section:
        if step == LIST:
            return _read_list(found, source)
        _refuse_repeated(found, source)
        found = found.get(step)
        if found is None:
            return {}
        if section[-1:] == (LIST,) and isinstance(found, list):
            continue
        if not isinstance(found, Mapping):
            raise _refuse_kind(f"{source}: '{step}'", found)
    _refuse_repeated(found, source)
    return found  # type: ignore[no-any-return]  # narrowed by the loop


def _refuse_kind(place: str, found: object) -> ConfigError:
    return ConfigError(
        f"{place} holds {name_type(found)}. Expected names with their values.", hint="Correct it by hand."
    )


def _read_list(listed: Any, source: str) -> Mapping[str, Any]:
    """The named entries of a list, by their names."""
    if not isinstance(listed, list):
        raise ConfigError(f"{source} does not hold its servers in a list.", hint="Edit it by hand.")
    named = [each for each in listed if _name(each)]
    entries = {each["name"]: each for each in named}
    if len(entries) < len(named):
        raise ConfigError(f"{source} has two servers of one name.", hint="Remove one of them.")
    return entries


def _name(item: Any) -> str:
    """The name of a list's entry; empty where it has none, as a reference to another file."""
    name = item.get("name") if isinstance(item, Mapping) else None
    return name if isinstance(name, str) else ""


def edit(text: str, language: TextFormat, section: tuple[str, ...], changes: Changes, source: str) -> str:
    """The text with these entries of a section changed, and every other byte as it was.

    Raises:
        ConfigError: It is written in a way that cannot be edited here.
    """
    mark = _MARK if text.startswith(_MARK) else ""
    inner = text.removeprefix(mark)
    document = parse(inner, language, source)
    wanted = _apply_changes(document, section, changes, source)
    if language == "json":
        edited = rewrite(inner if inner.strip() else "{}\n", wanted)
    elif language == "toml":
        edited = edit_toml(inner, section, changes, source)
    else:
        edited = edit_yaml(inner, section[0], changes, is_list=section[-1:] == (LIST,))
    if not _is_wanted(edited, language, section, wanted):  # rather no change than a wrong one
        raise ConfigError(f"{source} is written in a way that cannot be edited here.", hint="Edit it by hand.")
    return mark + edited


def _apply_changes(
    document: Mapping[str, Any], section: tuple[str, ...], changes: Changes, source: str
) -> Mapping[str, Any]:
    entries = dict(read_section(document, section, source))
    for name, entry in changes.items():
        entries.pop(name, None) if entry is None else entries.update({name: dict(entry)})
    value: Any = entries
    if section[-1:] == (LIST,):
        section = section[:-1]
        listed = document.get(section[0]) or []
        kept = [entries.pop(_name(each), None) if _name(each) else each for each in listed]
        value = [*(each for each in kept if each is not None), *entries.values()]
    for depth in reversed(range(len(section))):
        value = {**read_section(document, section[:depth], source), section[depth]: value}
    return value  # type: ignore[no-any-return]  # a map, as every section has a key


def _is_wanted(edited: str, language: TextFormat, section: tuple[str, ...], wanted: Mapping[str, Any]) -> bool:
    try:
        found = parse(edited, language, "the text")
        if language == "json":
            return is_same(found, wanted)
        return _is_equal(_drop_empty_section(found, section[0]), _drop_empty_section(wanted, section[0]))
    except ConfigError:
        return False


def _is_equal(found: Any, wanted: Any) -> bool:
    """Whether two documents hold the same; `nan` of TOML and YAML is the same as itself here."""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        return found.keys() == wanted.keys() and all(_is_equal(value, wanted[key]) for key, value in found.items())
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_is_equal, found, wanted))
    return bool(found == wanted or (found != found and wanted != wanted))  # noqa: PLR0124  (nan alone)


def _drop_empty_section(document: Mapping[str, Any], section: str) -> dict[str, Any]:
    """The document, in which an empty section is the same as none: TOML has no other way to write it."""
    return {key: value for key, value in document.items() if key != section or value}


def _refuse_repeated(found: Mapping[str, Any], source: str) -> None:
    if isinstance(found, JsonObject) and found.duplicates:
        message = f"{source} has the key {found.duplicates[0]!r:.60} twice in one object."
        raise ConfigError(message, hint="Remove one of them: which one counts is unsure.")
