"""The run of one script: its calls made, its limits held, its outcome one of a few kinds.

Gateway and process exchange JSON objects, one a line, bounded. The gateway sends one `ScriptStart`, then a `Reply` to
each `Called`. The process says `Printed` and `Called`, and at its end `Returned` or `Failed`. A script may take over
its process, so nothing it says is believed beyond what a script may say.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from smart_mcp_proxy.errors import Delivery, ProxyError, RefusedError, RequestError
from smart_mcp_proxy.gateway.sandbox.process import LINE_BYTES, ScriptProcess
from smart_mcp_proxy.gateway.sandbox.runtimes import Language

OUTPUT_CHARS: Final = 16_000
"""Characters that are kept of what a script prints: about 4,000 tokens, enough to debug with."""
_CALLS_IN_FLIGHT: Final = 8
"""Calls of one script that run at a time: enough for a fan-out, and other callers' calls still find room."""
_MESSAGE_CHARS: Final = 1_000
_OUT_OF_MEMORY: Final = (b"out of memory", b"memory allocation of")
"""Last words of V8 and Rust when they get no memory."""

MakeCall = Callable[[str, Mapping[str, Any]], Awaitable[bytes]]
"""Calls a tool by name; fails with ProxyError."""

_NAME_CHARS = 100
_LISTED_GROUPS = 50
"""Calls are listed by tool and outcome; a script that calls more tools than this hears how many are left out."""
_TOLD_CHARS: Final = 2_000
"""Characters of a tool's words about its failure."""


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


def _decode_message(line: bytes) -> Message:
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


class _Block(msgspec.Struct):
    type: str
    text: str = ""


class _Result(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"[]")
    structuredContent: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # noqa: N815  (MCP's spelling)
    isError: bool | None = False  # noqa: N815  (MCP's spelling)


_result = msgspec.json.Decoder(_Result)
_blocks = msgspec.json.Decoder(list[_Block])


class Script(msgspec.Struct, frozen=True):
    """A script and its limits.

    Attributes:
        code: Its text.
        language: What it is written in.
        input: What it finds as `input`.
        timeout_s: It ends by itself within this time, waiting for calls included, or is ended.
        memory_bytes: What it may use.
        max_calls: It is ended when it asks for one more.
    """

    code: str
    language: Language
    input: Mapping[str, Any]
    timeout_s: float
    memory_bytes: int
    max_calls: int


class Finished(msgspec.Struct, frozen=True):
    """Result of a script that ended well.

    Attributes:
        result: JSON text.
        output: What it printed, as far as it is kept.
    """

    result: msgspec.Raw
    output: str


class Entry(msgspec.Struct):
    """A call that the script made.

    Attributes:
        name: The tool as the script wrote it.
        outcome: `ok`, `tool_error` or an error code; `cancelled` until it has ended.
        delivery: What is known of its arrival.
    """

    name: str
    outcome: str = "cancelled"
    delivery: Delivery = "not_sent"


class Ledger:
    """Every call of one script."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def open(self, name: str) -> Entry:
        """The entry of a call that is about to be made."""
        entry = Entry(name[:_NAME_CHARS])
        self._entries.append(entry)
        return entry

    @property
    def delivery(self) -> Delivery:
        """Delivery of the script as a whole: unknown if any call's is, else executed if any was."""
        found = {entry.delivery for entry in self._entries}
        return "unknown" if "unknown" in found else "executed" if "executed" in found else "not_sent"

    def groups(self) -> list[dict[str, Any]]:
        """The calls by tool and outcome, in the order of their first."""
        counted = Counter((entry.name, entry.outcome) for entry in self._entries)
        groups: list[dict[str, Any]] = [
            {"name": name, "outcome": outcome, "count": count} for (name, outcome), count in counted.items()
        ]
        if rest := groups[_LISTED_GROUPS:]:
            others = {"name": f"{len(rest)} others", "outcome": "various", "count": sum(each["count"] for each in rest)}
            return [*groups[:_LISTED_GROUPS], others]
        return groups


class ScriptRun:
    """The run of one script in one process.

    Args:
        script: What is run.
        process: Where it runs; says nothing yet.
        make_call: Makes its calls.
        ledger: Where they are written down.
    """

    def __init__(self, script: Script, process: ScriptProcess, make_call: MakeCall, ledger: Ledger) -> None:
        self._script = script
        self._process = process
        self._make_call = make_call
        self._ledger = ledger
        self._slots = asyncio.Semaphore(_CALLS_IN_FLIGHT)
        self._calls: set[asyncio.Task[None]] = set()
        self.output = ""
        """Text that the script printed, as far as it is kept."""

    async def finish(self) -> Finished:
        """Return the script's result; calls that it did not wait for are cancelled.

        Raises:
            RequestError: It failed, or ran into a limit of time or memory.
            RefusedError: It wanted to make more calls than it may.
        """
        async with asyncio.TaskGroup() as group:
            try:
                end = await self._end(group)
            finally:
                self._process.kill()
                for call in self._calls:
                    call.cancel()
        if isinstance(end, ProxyError):
            raise end
        return end

    async def _end(self, group: asyncio.TaskGroup) -> Finished | ProxyError:
        """Return the outcome as a value: an error raised inside a group would not come out as itself."""
        script = self._script
        start = ScriptStart(script.code, dict(script.input), script.timeout_s, script.memory_bytes, OUTPUT_CHARS)
        try:
            async with asyncio.timeout(script.timeout_s):
                await self._process.write(msgspec.json.encode(start) + b"\n")
                return await self._listen(group)
        except TimeoutError:
            return self._build_timeout_error()
        except ValueError as exc:
            return _build_code_error("code_error", f"What the script said cannot be read: {exc}.")

    async def _listen(self, group: asyncio.TaskGroup) -> Finished | ProxyError:
        async for line in self._process.lines():
            match _decode_message(line):
                case Printed(text):
                    self.output = _cut(self.output + text)
                case Called() as called:
                    if len(self._ledger) == self._script.max_calls:
                        return self._too_many_calls()
                    entry = self._ledger.open(called.name)
                    call = group.create_task(self._call(called, entry))
                    self._calls.add(call)
                    call.add_done_callback(self._calls.discard)
                case Returned(result):
                    return Finished(result, self.output)
                case Failed() as failed:
                    return self._failure(failed)
        return await self._build_exit_error()

    async def _call(self, called: Called, entry: Entry) -> None:
        """Makes one call and answers it; whatever fails is the script's to handle."""
        async with self._slots:
            entry.delivery = "unknown"
            try:
                raw = await self._make_call(called.name, called.args)
                entry.delivery = "executed"
                reply, entry.outcome = _build_reply(called.id, raw)
            except ProxyError as error:
                entry.outcome, entry.delivery = error.error_code, error.delivery
                reply = Reply(called.id, error=ReplyError(error.error_code, error.message, error.hint))
            except RecursionError:
                entry.outcome = "invalid_arguments"
                reply = Reply(called.id, error=ReplyError("invalid_arguments", "The arguments are nested too deeply."))
            line = msgspec.json.encode(reply) + b"\n"
            if len(line) > LINE_BYTES:
                entry.outcome = "result_too_large"
                message = f"The result has {len(line)} bytes; a script gets at most {LINE_BYTES}."
                line = msgspec.json.encode(Reply(called.id, error=ReplyError(entry.outcome, message))) + b"\n"
            await self._process.write(line)

    def _failure(self, failed: Failed) -> ProxyError:
        if failed.kind == "time":
            return self._build_timeout_error()
        if failed.kind == "memory":
            return self._out_of_memory()
        message = failed.message[:_MESSAGE_CHARS]
        if failed.kind == "crash":
            return _build_code_error("code_error", "The interpreter of the script broke:", said=message)
        where = f"Line {failed.line}:" if failed.line is not None else ""
        return _build_code_error("code_error", where, line=failed.line, said=message)

    async def _build_exit_error(self) -> ProxyError:
        """The process closed its output without a word."""
        await self._process.wait()
        if any(words in self._process.last_words for words in _OUT_OF_MEMORY):
            return self._out_of_memory()
        return _build_code_error("code_error", f"The script ended its process (exit code {self._process.exit_code}).")

    def _build_timeout_error(self) -> ProxyError:
        return RequestError(
            f"The script did not end within {self._script.timeout_s:g} s.",
            hint="Do less in one script, or raise timeout_ms; the operator's limit is MCPPROXY_CODE_TIMEOUT_S.",
            code="code_timeout",
        )

    def _out_of_memory(self) -> ProxyError:
        return RequestError(
            f"The script needs more than {self._script.memory_bytes >> 20} MiB of memory.",
            hint="Keep less at a time; the operator's limit is MCPPROXY_CODE_MEMORY_MB.",
            code="code_memory",
        )

    def _too_many_calls(self) -> ProxyError:
        return RefusedError(
            f"The script wants to make more than {self._script.max_calls} calls.",
            hint="Split the work over several scripts, or raise max_calls; the operator's limit is "
            "MCPPROXY_CODE_MAX_CALLS.",
            code="code_too_many_calls",
        )


def _build_code_error(code: str, message: str, line: int | None = None, said: str = "") -> ProxyError:
    return RequestError(
        message,
        hint="Correct the script and run it again; data.calls says which calls were made already.",
        code=code,
        data=None if line is None else {"line": line},
        said=said,
    )


def _cut(text: str) -> str:
    marker = "\n[... more was printed than is kept ...]"
    return text if len(text) <= OUTPUT_CHARS else text[: OUTPUT_CHARS - len(marker)] + marker


def _build_reply(id: int, raw: bytes) -> tuple[Reply, str]:
    """Return the reply to an answered call, and its outcome.

    Structured content, else text, else the content blocks.

    Args:
        id: Of the call.
        raw: The tool's result.
    """
    result = _result.decode(raw)
    text = _join_text_blocks(result.content)
    if result.isError:
        return Reply(id, error=ReplyError("tool_error", (text or "The tool failed.")[:_TOLD_CHARS])), "tool_error"
    if result.structuredContent is not msgspec.UNSET and bytes(result.structuredContent) != b"null":
        return Reply(id, value=result.structuredContent), "ok"
    if text is not None:
        return Reply(id, text=text), "ok"
    return Reply(id, value=result.content), "ok"


def _join_text_blocks(content: msgspec.Raw) -> str | None:
    """The text, where there is nothing but text."""
    try:
        blocks = _blocks.decode(content)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return "\n".join(block.text for block in blocks) if all(block.type == "text" for block in blocks) else None
