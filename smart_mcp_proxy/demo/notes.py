"""Demo server `notes`: short notes, kept in memory while the server runs."""

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

from smart_mcp_proxy.demo.records import Record, Records
from smart_mcp_proxy.demo.tool import Server, Tool, array, integer, items, string

__all__ = ["SERVER"]

MAX_NOTE_CHARS = 10_000


def add_note(notes: Records, title: str, text: str, tags: list[str]) -> dict[str, Any]:
    """Keeps a new note."""
    return notes.add(title=title, text=text, tags=tags)


def list_notes(notes: Records, tag: str) -> dict[str, Any]:
    """The notes without their texts."""
    return _listed(note for note in notes if not tag or tag in note["tags"])


def get_note(notes: Records, id: int) -> dict[str, Any]:
    """One whole note."""
    return notes.get(id)


def search_notes(notes: Records, query: str) -> dict[str, Any]:
    """The notes in which every word of the query occurs."""
    words = query.lower().split()
    return _listed(note for note in notes if all(word in _searched(note) for word in words))


def append_to_note(notes: Records, id: int, text: str) -> dict[str, Any]:
    """Adds a line to a note."""
    note = notes.get(id)
    if len(note["text"]) + len(text) >= MAX_NOTE_CHARS:
        raise ValueError(f"Note {id} would become longer than {MAX_NOTE_CHARS} characters. Start another one.")
    note["text"] = f"{note['text']}\n{text}" if note["text"] else text
    return note


def delete_note(notes: Records, id: int) -> str:
    """Forgets a note."""
    return f"Deleted note {id}, '{notes.delete(id)['title']}'."


def delete_all_notes(notes: Records) -> str:
    """Forgets everything."""
    return f"Deleted {notes.delete_where(lambda _: True)} notes."


def _searched(note: Record) -> str:
    return f"{note['title']} {note['text']} {' '.join(note['tags'])}".lower()


def _listed(notes: Iterable[Record]) -> dict[str, Any]:
    return {"notes": [{"id": note["id"], "title": note["title"]} for note in notes]}


_ID = integer("Number of the note", minimum=1)
_TEXT = string("Body of the note", maxLength=MAX_NOTE_CHARS)
_NOTE = {
    "id": integer("Number of the note"),
    "title": string("Headline"),
    "text": string("Body"),
    "tags": array("Tags", "string"),
}
_LIST = {"notes": items("Oldest first", {"id": integer("Number of the note"), "title": string("Headline")})}

SERVER = Server(
    instructions="Short notes with tags. They are forgotten when the server stops.",
    open=lambda: nullcontext(Records("note")),
    tools=(
        Tool(
            add_note,
            title="Add a note",
            description="Write down a new note with a title, a text and tags.",
            parameters={
                "title": string("Headline", minLength=1, maxLength=200),
                "text": {**_TEXT, "default": ""},
                "tags": array("Tags to find it by", "string", default=[], maxItems=20),
            },
            output=_NOTE,
            effect="write",
        ),
        Tool(
            list_notes,
            title="List notes",
            description="List the titles of all notes, or of those with one tag.",
            parameters={"tag": string("Only notes with this tag; empty for all", default="")},
            output=_LIST,
        ),
        Tool(
            get_note,
            title="Read a note",
            description="Read one note in full.",
            parameters={"id": _ID},
            output=_NOTE,
        ),
        Tool(
            search_notes,
            title="Search notes",
            description="Find the notes that contain all words of a query in title, text or tags.",
            parameters={"query": string("Words to look for", minLength=1)},
            output=_LIST,
        ),
        Tool(
            append_to_note,
            title="Append to a note",
            description="Add a line of text to the end of an existing note.",
            parameters={"id": _ID, "text": _TEXT},
            output=_NOTE,
            effect="write",
        ),
        Tool(
            delete_note,
            title="Delete a note",
            description="Delete one note for good.",
            parameters={"id": _ID},
            effect="destructive",
        ),
        Tool(
            delete_all_notes,
            title="Delete all notes",
            description="Delete every note for good.",
            effect="destructive",
        ),
    ),
)
