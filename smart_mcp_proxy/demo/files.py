"""Demo server `files`: text files in a temporary folder of its own, deleted when the server stops."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from smart_mcp_proxy.demo.tool import Server, Tool, integer, items, string

__all__ = ["SERVER"]

MAX_FILE_CHARS = 100_000
MAX_FILES = 200
MAX_PATH_CHARS = 200
MAX_MATCHES = 100

_SAMPLES = {
    "welcome.txt": "These files belong to the demo. Write, move and delete them as you like.\n",
    "data/cities.csv": "city,country\nNairobi,Kenya\nOslo,Norway\nQuito,Ecuador\n",
}


def list_files(root: Path) -> dict[str, Any]:
    """All files."""
    return {"files": [_described(root, path) for path in _files(root)]}


def read_file(root: Path, path: str) -> str:
    """The text of a file."""
    return _text_of(_existing(root, path))


def file_info(root: Path, path: str) -> dict[str, Any]:
    """Facts about a file."""
    file = _existing(root, path)
    return {**_described(root, file), "lines": len(_text_of(file).splitlines())}


def search_files(root: Path, query: str) -> dict[str, Any]:
    """The lines in which a text occurs."""
    matches = [
        {"path": str(file.relative_to(root)), "line": number, "text": line}
        for file in _files(root)
        for number, line in enumerate(_text_of(file).splitlines(), start=1)
        if query.lower() in line.lower()
    ]
    return {"matches": matches[:MAX_MATCHES], "total": len(matches)}


def append_to_file(root: Path, path: str, text: str) -> dict[str, Any]:
    """Adds text to the end of a file."""
    file = _inside(root, path)
    return _written(root, file, (_text_of(file) if file.is_file() else "") + text)


def write_file(root: Path, path: str, text: str) -> dict[str, Any]:
    """Gives a file its text."""
    return _written(root, _inside(root, path), text)


def move_file(root: Path, source: str, target: str) -> dict[str, Any]:
    """Renames a file."""
    file, place = _existing(root, source), _inside(root, target)
    if place.exists():
        raise ValueError(f"'{target}' exists already. Choose another name, or delete it first.")
    _make_folder(root, place)
    return _described(root, file.rename(place))


def delete_file(root: Path, path: str) -> str:
    """Removes a file."""
    _existing(root, path).unlink()
    return f"Deleted '{path}'."


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def _inside(root: Path, path: str) -> Path:
    parts = Path(path).parts
    if not parts or "\0" in path or Path(path).is_absolute() or ".." in parts:
        raise ValueError(f"'{path}' is not a path below the folder of this server, such as data/cities.csv.")
    return root.joinpath(*parts)


def _existing(root: Path, path: str) -> Path:
    if not (file := _inside(root, path)).is_file():
        raise ValueError(f"There is no file '{path}'. list_files shows what there is.")
    return file


def _text_of(file: Path) -> str:
    return file.read_bytes().decode("utf-8")


def _make_folder(root: Path, file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as exc:
        raise ValueError(f"'{file.parent.relative_to(root)}' is a file, not a folder.") from exc


def _written(root: Path, file: Path, text: str) -> dict[str, Any]:
    if file.is_dir():
        raise ValueError(f"'{file.relative_to(root)}' is a folder.")
    if len(text) > MAX_FILE_CHARS:
        raise ValueError(f"The file would have {len(text)} characters. Expected at most {MAX_FILE_CHARS}.")
    if not file.exists() and len(_files(root)) >= MAX_FILES:
        raise ValueError(f"There are {MAX_FILES} files already. Delete one first.")
    content = text.encode("utf-8")
    _make_folder(root, file)
    file.write_bytes(content)
    return _described(root, file)


def _described(root: Path, file: Path) -> dict[str, Any]:
    return {"path": str(file.relative_to(root)), "size_bytes": file.stat().st_size}


@contextmanager
def _sandbox() -> Iterator[Path]:
    with TemporaryDirectory(prefix="mcpproxy-demo-") as folder:
        root = Path(folder)
        for path, text in _SAMPLES.items():
            write_file(root, path, text)
        yield root


_PATH = string("Relative path such as data/cities.csv", minLength=1, maxLength=MAX_PATH_CHARS)
_TEXT = string("Text of the file", maxLength=MAX_FILE_CHARS)
_FILE = {"path": string("Relative path"), "size_bytes": integer("Size in bytes")}

SERVER = Server(
    instructions="Text files in a temporary folder. The folder is deleted when the server stops.",
    open=_sandbox,
    tools=(
        Tool(
            list_files,
            title="List files",
            description="List all files of the folder with their sizes.",
            output={"files": items("By path", _FILE)},
        ),
        Tool(
            read_file,
            title="Read a file",
            description="Read the content of a text file.",
            parameters={"path": _PATH},
        ),
        Tool(
            file_info,
            title="File information",
            description="Get the size and the number of lines of a file without reading it.",
            parameters={"path": _PATH},
            output={**_FILE, "lines": integer("Number of lines")},
        ),
        Tool(
            search_files,
            title="Search in files",
            description=f"Find the lines of all files that contain a text (grep); the first {MAX_MATCHES} are listed.",
            parameters={"query": string("Text to look for, in any case", minLength=1, maxLength=500)},
            output={
                "matches": items(
                    "By path and line",
                    {"path": string("Relative path"), "line": integer("Line number, from 1"), "text": string("Line")},
                ),
                "total": integer("How many lines match"),
            },
        ),
        Tool(
            append_to_file,
            title="Append to a file",
            description="Add text to the end of a file; a missing file is created.",
            parameters={"path": _PATH, "text": _TEXT},
            output=_FILE,
            effect="write",
        ),
        Tool(
            write_file,
            title="Write a file",
            description="Create a text file, or replace everything that is in it.",
            parameters={"path": _PATH, "text": _TEXT},
            output=_FILE,
            effect="destructive",
        ),
        Tool(
            move_file,
            title="Move a file",
            description="Move or rename a file. An existing target is left alone.",
            parameters={"source": _PATH, "target": _PATH},
            output=_FILE,
            effect="write",
        ),
        Tool(
            delete_file,
            title="Delete a file",
            description="Delete a file for good.",
            parameters={"path": _PATH},
            effect="destructive",
        ),
    ),
)
