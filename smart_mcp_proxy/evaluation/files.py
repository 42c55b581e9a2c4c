"""Reads the JSON-lines files of an evaluation, and says which line is wrong and why."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.models import ToolKey

_SHOWN_CHARS = 60
"""Characters of a wrong value that an error repeats."""
_SCHEMAS = ("input_schema", "inputSchema")


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A query whose right answer is known.

    Attributes:
        id: Names it.
        text: What an agent would ask.
        gold: For each right tool its canonical name and those of tools that are equally right; empty where no tool
            is right, and for a query that asks for a server.
        server: Any tool of this server is right; empty where tools are.
        source: Where it comes from.
        style: What kind of query it is.
    """

    id: str
    text: str
    gold: tuple[frozenset[str], ...] = ()
    server: str = ""
    source: str = ""
    style: str = ""

    @property
    def stratum(self) -> tuple[str, str]:
        """Source and style: what is averaged before everything else."""
        return self.source, self.style

    @property
    def is_unanswerable(self) -> bool:
        """Whether nothing is right, so that an empty answer is."""
        return not self.gold and not self.server


@dataclass(frozen=True, slots=True)
class LabelledTool:
    """A tool definition from a file.

    Attributes:
        key: Server and name.
        definition: As a server would list it.
        source: Where it comes from.
    """

    key: ToolKey
    definition: Mapping[str, Any] = field(repr=False)
    source: str = ""


class _Line(NamedTuple):
    """Line of a file: its place, and the JSON object on it."""

    place: str
    row: Mapping[str, Any]

    def text(self, member: str, *, is_needed: bool = True) -> str:
        """A member that must be text, and must not be empty if it is needed."""
        value = self.row.get(member)
        if value is None and not is_needed:
            return ""
        if not isinstance(value, str):
            raise self.wrong(
                f"{member!r} is {_shorten_repr(value)}. Expected text." if value is not None else f"no {member!r}"
            )
        if is_needed and not value.strip():
            raise self.wrong(f"{member!r} is empty")
        return value

    def names(self, member: str, value: Any) -> list[str]:
        """A value that must be a list of canonical names."""
        if not isinstance(value, list) or not all(isinstance(name, str) and ":" in name for name in value):
            raise self.wrong(f"{member!r} is {_shorten_repr(value)}. Expected a list of names, SERVER:TOOL each.")
        return value

    def wrong(self, what: str) -> RequestError:
        """The error that names this line."""
        return RequestError(f"{self.place}: {what.rstrip('.')}.", hint="Repair that line, or leave it out.")


def read_queries(path: Path) -> list[LabelledQuery]:
    """The queries of a file, in its order.

    One JSON object a line: `id`, `query`, and `gold`, the list of right tools (`server:tool` each; empty: no tool is
    right). Instead of `gold`, `server` (or `gold_server`) means that any tool of it is right. Optional: `alt`, an
    object from a right tool to a list of equally right ones; `source` and `style`.

    Raises:
        RequestError: The file or a line of it cannot be used; the message names it.
    """
    queries: dict[str, LabelledQuery] = {}
    for line in _lines(path):
        query = _query(line)
        if query.id in queries:
            raise line.wrong(f"the id {_shorten_repr(query.id)} is used twice")
        queries[query.id] = query
    if not queries:
        raise RequestError(f"{path} has no queries.", hint="Expected one JSON object a line.")
    return list(queries.values())


def read_tools(path: Path) -> list[LabelledTool]:
    """The tools of a file, in its order.

    One JSON object a line: `server`, `name`, and optionally `description`, `input_schema`, `title`, `annotations`,
    `source`.

    Raises:
        RequestError: The file or a line of it cannot be used; the message names it.
    """
    tools: dict[ToolKey, LabelledTool] = {}
    for line in _lines(path):
        tool = _tool(line)
        if tool.key in tools:
            raise line.wrong(f"the tool {_shorten_repr(str(tool.key))} is listed twice")
        tools[tool.key] = tool
    if not tools:
        raise RequestError(f"{path} has no tools.", hint="Expected one JSON object a line.")
    return list(tools.values())


def _lines(path: Path) -> Iterator[_Line]:
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise RequestError(f"{path} cannot be read: {exc.strerror or exc}.", hint="Check the path.") from exc
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not raw.strip():
            continue
        line = _Line(f"{path}:{number}", {})
        try:
            row = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        except UnicodeDecodeError as exc:
            raise line.wrong(f"not UTF-8 from byte {exc.start + 1} on") from exc
        except json.JSONDecodeError as exc:
            raise line.wrong(f"not JSON: {exc.msg} at character {exc.pos + 1}") from exc
        except ValueError as exc:
            raise line.wrong(f"not JSON: {exc}") from exc
        except RecursionError as exc:
            raise line.wrong("nested too deeply") from exc
        if not isinstance(row, dict):
            raise line.wrong(f"{_shorten_repr(row)} is no JSON object")
        yield line._replace(row=row)


def _query(line: _Line) -> LabelledQuery:
    row = line.row
    server_member = "gold_server" if "gold_server" in row else "server"
    if "gold" not in row and server_member not in row:
        raise line.wrong("no 'gold'. Expected the list of right tools, empty if none is")
    gold, alt = line.names("gold", row.get("gold", [])), row.get("alt", {})
    if not isinstance(alt, dict):
        raise line.wrong(f"'alt' is {_shorten_repr(alt)}. Expected an object from a right tool to equally right ones.")
    return LabelledQuery(
        id=line.text("id"),
        text=line.text("query"),
        gold=tuple(frozenset((name, *line.names("alt", alt.get(name, [])))) for name in dict.fromkeys(gold)),
        server="" if "gold" in row else line.text(server_member),
        source=line.text("source", is_needed=False),
        style=line.text("style", is_needed=False),
    )


def _tool(line: _Line) -> LabelledTool:
    row = line.row
    key = ToolKey(line.text("server"), line.text("name"))
    if ":" in key.server:
        raise line.wrong(f"'server' is {_shorten_repr(key.server)}. A server's name has no colon.")
    schema: Any = next((row[member] for member in _SCHEMAS if row.get(member) is not None), {})
    definition: dict[str, Any] = {"name": key.tool}
    if description := line.text("description", is_needed=False):
        definition["description"] = description
    if title := line.text("title", is_needed=False):
        definition["title"] = title
    definition["inputSchema"] = _object(line, "input_schema", schema)
    if row.get("annotations") is not None:
        definition["annotations"] = _object(line, "annotations", row["annotations"])
    return LabelledTool(key, definition, line.text("source", is_needed=False))


def _object(line: _Line, member: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise line.wrong(f"{member!r} is {_shorten_repr(value)}. Expected an object.")
    return value


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")


def _shorten_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."
