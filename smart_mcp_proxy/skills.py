"""Entries of skills as servers list them: their use, their files, their frontmatter.

Source: https://modelcontextprotocol.io/seps/2640-skills-extension
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import yaml

MAIN_FILE: Final = "SKILL.md"
DYNAMIC: Final = "dynamic"
"""In the place of the files of a skill that is generated."""
MOST_FILES: Final = 512
MOST_BYTES: Final = 16 << 20
"""Source: https://modelcontextprotocol.io/seps/2640-skills-extension"""
_DIGEST: Final = r"sha256:[0-9a-f]{64}"
_SHOWN_CHARS: Final = 80
_FENCED: Final = r"(?ms)\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$"
_FRONTMATTER_CHARS: Final = 16_384
_MOST_BRACKETS: Final = 200
"""Opened in a frontmatter; the parser takes seconds for thousands within each other."""
"""A description has 1,024 at most; reading more than this takes long. Source: https://agentskills.io/specification"""
_NAMED_FIELDS: Final = 3
_MIDNIGHT: Final = r"T00:00:00(?:\.0+)?(?:Z|\+00:00)"
_BOOLEANS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
}


class SkillFile(NamedTuple):
    """File of a skill: its digest, and its length in bytes."""

    digest: str
    size: int


def find_skill_root(uri: str) -> str:
    """The directory of a skill, without a slash at its end; `uri` is that of its main file."""
    return uri.removesuffix(f"/{MAIN_FILE}")


def is_inside(root: str, uri: str) -> bool:
    """Whether a URI is that of a file or directory inside a skill's directory."""
    return uri.startswith(f"{root}/") and len(uri) > len(root) + 1


def map_skill_files(entry: Mapping[str, Any]) -> Mapping[str, SkillFile] | None:
    """The files of a usable entry by URI; None where the skill is generated."""
    listed = entry["resources"]
    return None if listed == DYNAMIC else {file["uri"]: SkillFile(file["digest"], file["size"]) for file in listed}


def skill_problem(entry: Any) -> str | None:
    """Why an entry cannot be used, None if it can."""
    if not isinstance(entry, Mapping):
        return "it is no object"
    uri = entry.get("uri")
    if not isinstance(uri, str) or "://" not in uri or not uri.endswith(f"/{MAIN_FILE}"):
        return f"its uri does not lead to a {MAIN_FILE}"
    about = entry.get("frontmatter")
    if not isinstance(about, Mapping):
        return "its frontmatter is no object"
    for member in ("name", "description"):
        if not isinstance(about.get(member), str) or not about[member].strip():
            return f"its frontmatter has no {member}"
    root = find_skill_root(uri)
    if unquote(root.rpartition("/")[2]) != about["name"]:
        return f"its directory is not called {about['name'][:_SHOWN_CHARS]!r}, as it is"
    if not isinstance(entry.get("_meta"), Mapping | None):
        return "its _meta is no object"
    return _files_problem(root, uri, entry.get("resources"))


def _files_problem(root: str, uri: str, listed: Any) -> str | None:
    if listed == DYNAMIC:
        return None
    if not isinstance(listed, list):
        return "its resources are no list of files"
    if len(listed) > MOST_FILES:
        return f"it has {len(listed):,} files, and a skill has at most {MOST_FILES}"
    found: dict[str, int] = {}
    for file in listed:
        if (problem := _file_problem(root, file)) is not None:
            return problem
        if file["uri"] in found:
            return f"its file {file['uri'][:_SHOWN_CHARS]!r} is listed twice"
        found[file["uri"]] = file["size"]
    if uri not in found:
        return f"its files lack its own {MAIN_FILE}"
    if sum(found.values()) > MOST_BYTES:
        return f"its files have {sum(found.values()):,} bytes, and a skill has at most {MOST_BYTES:,}"
    return None


def _file_problem(root: str, file: Any) -> str | None:
    if not isinstance(file, Mapping) or not isinstance(uri := file.get("uri"), str):
        return "a file of it has no uri"
    shown = repr(uri[:_SHOWN_CHARS])
    inner = unquote(uri.removeprefix(f"{root}/")).split("/")
    if not is_inside(root, uri) or not {"", ".", ".."}.isdisjoint(inner):
        return f"its file {shown} is outside of its directory"
    if not isinstance(digest := file.get("digest"), str) or not re.fullmatch(_DIGEST, digest):
        return f"its file {shown} has no sha256 digest"
    size = file.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        return f"its file {shown} has no size"
    return None


def frontmatter_problem(text: str, stated: Mapping[str, Any]) -> str | None:
    """Why the frontmatter in a main file is not the one of its skill's entry; None if it is.

    Args:
        text: Of the file.
        stated: The frontmatter in the entry.

    Source: https://modelcontextprotocol.io/seps/2640-skills-extension
    """
    fenced = re.match(_FENCED, text[:_FRONTMATTER_CHARS])
    if fenced is None:
        return "does not begin with frontmatter"
    if fenced[1].count("[") + fenced[1].count("{") > _MOST_BRACKETS:
        return "begins with frontmatter of too many brackets"
    try:
        found = yaml.compose(fenced[1], yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return "begins with frontmatter that is not YAML"
    fields = found.value if isinstance(found, yaml.MappingNode) else []
    own = {key.value: value for key, value in fields if isinstance(key, yaml.ScalarNode)}
    if len(own) != len(fields):
        return "begins with frontmatter that says something twice"
    differing = [
        name
        for name in dict.fromkeys((*stated, *own))
        if not (name in own and name in stated) or not _is_same(own[name], stated[name])
    ]
    if not differing:
        return None
    return "says something else about " + ", ".join(repr(name[:_SHOWN_CHARS]) for name in differing[:_NAMED_FIELDS])


def _is_same(node: "yaml.Node", stated: Any) -> bool:
    """Whether YAML says what JSON says, whichever of its versions it was turned into JSON by."""
    if isinstance(node, yaml.MappingNode):
        inner = {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}
        if not isinstance(stated, Mapping) or not len(inner) == len(node.value) == len(stated):
            return False
        return all(name in stated and _is_same(value, stated[name]) for name, value in inner.items())
    if isinstance(node, yaml.SequenceNode):
        if not isinstance(stated, list) or len(node.value) != len(stated):
            return False
        return all(map(_is_same, node.value, stated))
    text, kind = str(node.value), node.tag.rpartition(":")[2]
    if isinstance(stated, str):
        is_date = kind == "timestamp" and stated.startswith(text)
        return text == stated or (is_date and re.fullmatch(_MIDNIGHT, stated.removeprefix(text)) is not None)
    if stated is None or isinstance(stated, bool):
        return kind == "null" if stated is None else kind == "bool" and _BOOLEANS.get(text.lower()) is stated
    return isinstance(stated, int | float) and kind in ("int", "float") and stated in _numbers(text)


def _numbers(text: str) -> list[float]:
    """The numbers that a plain scalar may be: 010 is eight in YAML 1.1, and ten in 1.2."""
    found: list[float] = []
    for read in (yaml.safe_load, float):
        try:
            value = read(text)
        except (yaml.YAMLError, ValueError, OverflowError):
            continue
        if isinstance(value, int | float):
            found.append(value)
    return found
