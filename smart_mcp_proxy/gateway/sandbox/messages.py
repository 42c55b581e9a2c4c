"""Messages between the gateway and a script's process: one JSON object a line, bounded.

The gateway sends one `ScriptStart`, then a `Reply` to each `Called`. The process says `Printed` and `Called`, and at
its end `Returned` or `Failed`. A script may take over its process, so nothing it says is believed beyond what a script
may say.
"""

from typing import Any, Literal

import msgspec


class ScriptStart(msgspec.Struct, frozen=True):
    """The script and its limits."""

    code: str
    input: dict[str, Any]
    timeout_s: float
    memory_bytes: int
    output_chars: int


class ReplyError(msgspec.Struct, frozen=True):
    """Why a call has no result."""

    code: str
    message: str
    hint: str = ""


class Reply(msgspec.Struct, frozen=True):
    """Outcome of a call: a value, a text that may be JSON, or an error."""

    id: int
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    text: str | msgspec.UnsetType = msgspec.UNSET
    error: ReplyError | msgspec.UnsetType = msgspec.UNSET


class _Said(msgspec.Struct, frozen=True, tag_field="say"):
    """Something that the process says."""


class Printed(_Said, frozen=True, tag="print"):
    """The script printed something."""

    text: str


class Called(_Said, frozen=True, tag="call"):
    """The script calls a tool."""

    id: int
    name: str
    args: dict[str, Any]


class Returned(_Said, frozen=True, tag="return"):
    """The script has ended."""

    result: msgspec.Raw


class Failed(_Said, frozen=True, tag="fail"):
    """The script has failed."""

    kind: Literal["error", "memory", "time", "crash"]
    message: str
    line: int | None = None


Message = Printed | Called | Returned | Failed
_decoder = msgspec.json.Decoder(Message)


def decode(line: bytes) -> Message:
    """Decode a line that the process wrote.

    Raises:
        ValueError: It says nothing that a script may say.
    """
    try:
        message: Message = _decoder.decode(line)
        if isinstance(message, Returned):
            msgspec.json.decode(message.result)  # what is passed on unread must be readable
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as exc:
        raise ValueError(str(exc)) from exc
    return message
