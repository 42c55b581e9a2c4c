"""What a client does, in words, by what a server has noted of its runs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NOT_SEEN = "not seen"
Note = Mapping[str, Any]

COLUMNS = {
    "protocol": "protocol version",
    "capabilities": "capabilities",
    "name": "name in `clientInfo`",
    "pages": "pages of `tools/list`",
    "list_changed": "`list_changed`",
    "progress": "progress",
    "names": "names of tools",
    "timeout": "a call without an answer",
    "folder": "folder",
    "variables": "variables",
    "restart_stdio": "the server ends, stdio",
    "restart_http": "the server restarts, HTTP",
    "end": "at its end, HTTP",
}
"""What is noted of a client, by its key in tests/clients/observed.json."""


def summarize(seen: Mapping[str, Mapping[str, Any]], slow_s: float) -> dict[str, str]:
    """The cells of one client.

    Args:
        seen: By way (`stdio`, `http`, `slow`): the server's notes, the tools of each turn, the home.
        slow_s: So long a call without an answer was watched, in seconds.
    """
    stdio, http = seen["stdio"], seen["http"]
    messages = _messages(stdio["notes"])
    opened = next((each["params"] for each in messages if each.get("method") == "initialize"), {})
    return {
        "protocol": _protocol(messages, opened),
        "capabilities": ", ".join(f"`{key}`" for key in opened.get("capabilities", {})) or "none",
        "name": f"`{opened['clientInfo']['name']}`" if "clientInfo" in opened else NOT_SEEN,
        "pages": _pages(messages),
        "list_changed": _list_changed(messages, stdio["turns"]),
        "progress": _progress(messages),
        "names": _names(stdio["turns"]),
        "timeout": _timeout(seen.get("slow"), slow_s),
        "folder": _folder(stdio["notes"], stdio["home"], messages),
        "variables": _variables(stdio["notes"]),
        "restart_stdio": _restart_stdio(stdio["notes"]),
        "restart_http": _restart_http(http["notes"]),
        "end": "ends its session (`DELETE`)" if _has_deleted(http["notes"]) else "sends no `DELETE`",
    }


def _messages(notes: Iterable[Note]) -> list[Mapping[str, Any]]:
    return [note["message"] for note in notes if note["kind"] == "message"]


def _calls(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    return [each["params"]["name"] for each in messages if each.get("method") == "tools/call"]


def _is_one_session(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether more than one call came in the first session; a command-line client has one for each."""
    opened = [at for at, each in enumerate(messages) if each.get("method") == "initialize"]
    first = messages[: opened[1]] if len(opened) > 1 else messages
    return len(_calls(first)) > 1


def _protocol(messages: Iterable[Mapping[str, Any]], opened: Mapping[str, Any]) -> str:
    version = str(opened.get("protocolVersion", NOT_SEEN))
    asked = next((each["params"]["_meta"] for each in messages if each.get("method") == "server/discover"), None)
    return version if asked is None else f"{asked['io.modelcontextprotocol/protocolVersion']}, else {version}"


def _pages(messages: Iterable[Mapping[str, Any]]) -> str:
    lists = [each.get("params") or {} for each in messages if each.get("method") == "tools/list"]
    if not lists:
        return NOT_SEEN
    return "reads all" if any(each.get("cursor") for each in lists) else "reads the first alone"


def _list_changed(messages: Sequence[Mapping[str, Any]], turns: Sequence[Sequence[str]]) -> str:
    grown = next((at for at, each in enumerate(messages) if (each.get("params") or {}).get("name") == "grow"), None)
    if grown is None:
        return NOT_SEEN
    if not _is_one_session(messages):
        return "a session for each command"
    after = messages[grown + 1 :]
    end = next((at for at, each in enumerate(after) if each.get("method") == "initialize"), len(after))
    if not any(each.get("method") == "tools/list" for each in after[:end]):
        return "does not list again"
    is_offered = any(tool.endswith("grown") for tools in turns for tool in tools)
    return "lists again, its model gets the new tool" if is_offered else "lists again"


def _progress(messages: Iterable[Mapping[str, Any]]) -> str:
    calls = [each["params"] for each in messages if each.get("method") == "tools/call"]
    if not calls:
        return NOT_SEEN
    return "asks for it" if all("progressToken" in call.get("_meta", {}) for call in calls) else "does not ask"


def _names(turns: Sequence[Sequence[str]]) -> str:
    if not turns or not turns[0]:
        return NOT_SEEN
    offered = turns[0]
    plain = next((name for name in offered if name.endswith("count")), "count")
    dotted = next((name for name in offered if re.search(r"dotted.name", name)), "")
    words = [f"`count` is `{plain}`", f"`dotted.name` is `{dotted.removeprefix(plain.removesuffix('count'))}`"]
    for length in (64, 128):
        own = next((name for name in offered if f"{length}_long" in name), "")
        whole = len(plain) - len("count") + length
        words.append(f"one of {length} letters {_length_words(len(own), whole)}")
    return "; ".join(words)


def _length_words(length: int, whole: int) -> str:
    if not length:
        return "is left out"
    return "stays whole" if length >= whole else f"is cut to {length}"


def _timeout(slow: Mapping[str, Any] | None, slow_s: float) -> str:
    """How long a call was waited for, by the first message or end behind it."""
    notes = slow["notes"] if slow else []
    asked = next((at for at, each in enumerate(notes) if "slow" in _calls(_messages([each]))), None)
    if asked is None:
        return NOT_SEEN
    begun = notes[asked]["at"]
    ends = [each["at"] for each in notes[asked + 1 :] if each["kind"] == "end" or _is_cancelled(each)]
    waited = min(ends, default=begun + slow_s) - begun
    return f"given up after {waited:.0f} s" if waited < slow_s - 10 else f"waited for, {slow_s:.0f} s and more"


def _is_cancelled(note: Note) -> bool:
    return note["kind"] == "message" and note["message"].get("method") == "notifications/cancelled"


def _folder(notes: Iterable[Note], home: str, messages: Iterable[Mapping[str, Any]]) -> str:
    place = next((str(each["cwd"]) for each in notes if each["kind"] == "start"), "")
    words = "the one it was started in" if place == home else "that of its own file"
    answer = next((each for each in messages if each.get("id") == "roots"), {})
    roots = answer.get("result", {}).get("roots")
    return f"{words}; {'no root' if not roots else 'names it as its root'}"


def _variables(notes: Iterable[Note]) -> str:
    started = next((each for each in notes if each["kind"] == "start"), None)
    if started is None:
        return NOT_SEEN
    if "PROBE_API_KEY" in started["variables"]:
        return "all of its own"
    return "all but those that look like secrets" if started["variables"] else "a short list (`HOME`, `PATH`, ...)"


def _has_stopped(notes: Iterable[Note]) -> bool:
    return "stop" in _calls(_messages(notes))


def _restart_stdio(notes: Sequence[Note]) -> str:
    if not _has_stopped(notes):
        return NOT_SEEN
    if not _is_one_session(_messages(notes)):
        return "a session for each command"
    starts = sum(each["kind"] == "start" for each in notes)
    return "starts it again with the next call" if starts > 1 else "calls fail until a new session"


def _restart_http(notes: Sequence[Note]) -> str:
    if not _has_stopped(notes):
        return NOT_SEEN
    messages = _messages(notes)
    if not _is_one_session(messages):
        return "a session for each command"
    stopped = _calls(messages).index("stop")
    is_well = "count" in _calls(messages)[stopped:]
    return "opens a new session with the next call" if is_well else "calls fail until a new session"


def _has_deleted(notes: Iterable[Note]) -> bool:
    return any(each["kind"] == "http" and each["method"] == "DELETE" for each in notes)
