"""The process of one Python script: `python -I python_child.py`.

run.py defines what goes over its pipes.

The script itself runs in Monty, an interpreter without files, network or environment, in a worker of its own: what is
here is out of its reach.
"""

import json
import sys
from typing import Any

from pydantic_monty import Monty, MontyCrashedError, MontyError, MontyRuntimeError, MontySyntaxError

_DEEPEST = 900
"""Monty puts a text in the place of what is nested deeper than 1,000, and from Python 3.12 on json writes that, too."""
_SUSPENSIONS = 1_000_000
"""Monty counts calls and look-ups of names alike; the gateway counts the calls."""


class _Pipes:
    """The gateway at the other end."""

    def __init__(self) -> None:
        self._last_id = 0

    def read(self) -> Any:
        """Read the next message; without one there is nothing left to do."""
        line = sys.stdin.buffer.readline()
        if not line:
            sys.exit(0)
        return json.loads(line)

    def say(self, what: str, /, **members: Any) -> None:
        """Tells it something."""
        text = json.dumps({"say": what, **members}, allow_nan=False, separators=(",", ":"))
        sys.stdout.buffer.write(text.encode() + b"\n")
        sys.stdout.buffer.flush()

    def ask(self, requests: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
        """The replies to calls that run at the same time, in their order."""
        ids = []
        for name, args in requests:
            self._last_id += 1
            ids.append(self._last_id)
            self.say("call", id=self._last_id, name=name, args=args)
        replies: dict[int, dict[str, Any]] = {}
        while len(replies) < len(ids):
            reply = self.read()
            replies[reply["id"]] = reply
        return [replies[id] for id in ids]


def main() -> None:
    """Runs the one script that the gateway sends."""
    pipes = _Pipes()
    start = pipes.read()
    left_chars = start["output_chars"]

    def call_tool(name: str, args: Any = None, more: dict[str, Any] | None = None) -> Any:
        # call_tool(server, tool, args) is the form of the field's other implementation.
        is_split = isinstance(name, str) and isinstance(args, str) and not args.lstrip().startswith(("[", "{"))
        (reply,) = pipes.ask([_request(f"{name}:{args}", more) if is_split else _request(name, args)])
        if "error" in reply:
            raise RuntimeError(f"{reply['error']['code']}: {reply['error']['message']}")
        return _value(reply)

    def call_tools(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        replies = pipes.ask([_request(**call) for call in calls])
        return [
            {"ok": False, "error": reply["error"]} if "error" in reply else {"ok": True, "result": _value(reply)}
            for reply in replies
        ]

    def forward_print(_stream: str, text: str) -> None:
        nonlocal left_chars
        if left_chars > 0:
            pipes.say("print", text=text[: left_chars + 1])  # one more: the gateway sees that something is missing
            left_chars -= len(text)

    try:
        with Monty(max_processes=1) as pool, pool.checkout(script_name="script.py", limits=_limits(start)) as session:
            value = session.feed_run(
                start["code"],
                inputs={"input": start["input"]},
                external_lookup={"call_tool": call_tool, "call_tools": call_tools},
                print_callback=forward_print,
            )
        _require_depth(value)
        pipes.say("return", result=value)
    except (MontyError, RecursionError, TypeError, ValueError) as exc:
        pipes.say("fail", **_failure(exc))


def _require_depth(value: Any) -> None:
    """Raises RecursionError where a value is nested deeper than `_DEEPEST`."""
    level = [value]
    for _ in range(_DEEPEST):
        # Each once, though it may stand in many places: lists of the same lists twice would double at each level.
        containers = {id(each): each for each in level if isinstance(each, dict | list | tuple)}.values()
        if not containers:
            return
        level = [inner for each in containers for inner in (each.values() if isinstance(each, dict) else each)]
    raise RecursionError


def _limits(start: dict[str, Any]) -> Any:
    return {
        "max_feed_duration_secs": start["timeout_s"],
        "max_memory": start["memory_bytes"],
        "max_suspensions": _SUSPENSIONS,
    }


def _request(name: str, args: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
    if not isinstance(name, str):
        raise TypeError("the name of a tool is a str")
    if not isinstance(args, dict | None):
        raise TypeError("the arguments of a tool are a dict")
    json.dumps(args, allow_nan=False)  # a call that cannot be written must not follow one that has been sent
    return name, args or {}


def _value(reply: dict[str, Any]) -> Any:
    """Return a tool's answer: structured content, else its text, read if it is JSON."""
    if "text" not in reply:
        return reply["value"]
    text = reply["text"]
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _failure(exc: Exception) -> dict[str, Any]:
    """Build a `fail` message from an error."""
    if isinstance(exc, MontyCrashedError):
        return {"kind": "time" if exc.timed_out else "crash", "message": str(exc)}
    if isinstance(exc, MontyRuntimeError | MontySyntaxError):
        cause, frames = exc.exception(), exc.traceback()
        kind = "memory" if isinstance(cause, MemoryError) else "time" if isinstance(cause, TimeoutError) else "error"
        return {"kind": kind, "message": exc.display("type-msg"), "line": frames[-1].line if frames else None}
    if isinstance(exc, RecursionError):
        return {"kind": "error", "message": "The result is nested too deeply to be written as JSON."}
    return {"kind": "error", "message": f"The result cannot be written as JSON: {exc}."}


if __name__ == "__main__":
    main()
