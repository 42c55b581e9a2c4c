"""Bad answers that fit any transport: what a request gets instead of, before or besides its good answer.

Each fault is a generator of messages, whole as they go on the wire; a number among them is a pause in seconds.
"""

import json
from collections.abc import Callable, Iterator

from server import Ask, dump

Fault = Callable[[Ask], Iterator[bytes | float]]
ANSWERS: dict[str, Fault] = {}
STREAMED: set[str] = set()
"""Faults of several messages or with pauses: over HTTP they need an event stream."""

TICK_S = 0.05
MEBIBYTE = 1 << 20


def answer(name: str, *, streamed: bool = False) -> Callable[[Fault], Fault]:
    def register(fault: Fault) -> Fault:
        ANSWERS[name] = fault
        if streamed:
            STREAMED.add(name)
        return fault

    return register


def simple(name: str, make: Callable[[Ask], bytes]) -> None:
    """Registers a fault of one message."""

    def fault(ask: Ask) -> Iterator[bytes]:
        yield make(ask)

    ANSWERS[name] = fault


# --- time


@answer("hang-before")
def hang_before(ask: Ask) -> Iterator[bytes | float]:
    yield from ()


@answer("hang")
def hang(ask: Ask) -> Iterator[bytes | float]:
    assert ask.good
    yield from ()


@answer("slow", streamed=True)
def slow(ask: Ask) -> Iterator[bytes | float]:
    yield 0.5
    yield dump(ask.good)


@answer("late")
def late(ask: Ask) -> Iterator[bytes | float]:
    ask.server.hold(dump(ask.good))
    yield from ()


@answer("progress-for-ever", streamed=True)
def progress_for_ever(ask: Ask) -> Iterator[bytes | float]:
    assert ask.good
    step = 0
    while ask.is_on():
        step += 1
        yield progress(ask, step)
        yield TICK_S


def progress(ask: Ask, step: float) -> bytes:
    params = {"progressToken": ask.params.get("_meta", {}).get("progressToken"), "progress": step}
    return dump({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


# --- storms


@answer("progress-storm", streamed=True)
def progress_storm(ask: Ask) -> Iterator[bytes | float]:
    yield from (progress(ask, step) for step in range(20_000))
    yield dump(ask.good)


@answer("changed-storm", streamed=True)
def changed_storm(ask: Ask) -> Iterator[bytes | float]:
    yield from (ask.server.tools_changed() for _ in range(20_000))
    yield dump(ask.good)


@answer("asks-back", streamed=True)
def asks_back(ask: Ask) -> Iterator[bytes | float]:
    methods = ("ping", "sampling/createMessage", "elicitation/create", "roots/list", "unknown/method")
    for number, method in enumerate(methods):
        yield dump({"jsonrpc": "2.0", "id": f"back-{number}", "method": method, "params": {}})
    yield dump({"jsonrpc": "2.0", "id": ask.id, "method": "sampling/createMessage", "params": {}})
    yield dump(ask.good)


@answer("unsolicited", streamed=True)
def unsolicited(ask: Ask) -> Iterator[bytes | float]:
    stolen = {"content": [{"type": "text", "text": "stolen"}]}
    ids = [ask.id + 1, ask.id - 1, 0, -1, "x", [], True, {}] if isinstance(ask.id, int) else [0, "x"]
    for other in ids:
        yield dump({"jsonrpc": "2.0", "id": other, "result": stolen})
    yield dump(ask.good)


@answer("twice", streamed=True)
def twice(ask: Ask) -> Iterator[bytes | float]:
    yield dump(ask.good)
    yield ask.with_result(content=[{"type": "text", "text": "second"}])


# --- bytes that are hard or impossible to read

simple("garbled", lambda ask: dump(ask.good)[:-3])
simple("garbled-id", lambda ask: dump(ask.good).replace(str(ask.id).encode(), b"nonsense", 1))
simple("empty-object", lambda ask: b"{}" if ask.good else b"")
simple("word", lambda ask: b"pardon" if ask.good else b"")
simple("bom", lambda ask: b"\xef\xbb\xbf" + dump(ask.good))
simple("crlf", lambda ask: dump(ask.good) + b"\r")
simple("utf-16", lambda ask: json.dumps(ask.good).encode("utf-16-le"))
simple("bad-utf8", lambda ask: dump(ask.good).replace(b'"recorded', b'"\xff\xfe\xc3( recorded'))
simple("surrogate", lambda ask: dump(ask.good).replace(b'"recorded', b'"\\ud800 \\udfff recorded'))
simple("nan", lambda ask: dump(ask.good).replace(b'"content"', b'"n": NaN, "content"'))
simple("huge-integer", lambda ask: dump(ask.good).replace(b'"content"', b'"n": ' + b"9" * 5_000 + b', "content"'))
simple("deep", lambda ask: with_depth(ask, b"n", 99_000))
simple("deep-structured", lambda ask: with_depth(ask, b"structuredContent", 900))
simple("deep-edge", lambda ask: with_depth(ask, b"structuredContent", 970, b'"isError": false, '))
simple("two-in-one", lambda ask: dump(ask.good) + dump(ask.good))
simple("batch", lambda ask: b"[" + dump(ask.good) + b"]")
simple("8-mib", lambda ask: big(ask, 8))
simple("32-mib", lambda ask: big(ask, 32))
simple("32-mib-id-last", lambda ask: b'{"result":{"t":"%s"},"jsonrpc":"2.0","id":%d}' % (
    b"x" * (32 * MEBIBYTE) if ask.good else b"", ask.id))  # fmt: skip


def with_depth(ask: Ask, member: bytes, depth: int, before: bytes = b"") -> bytes:
    value = b'{"n": ' + b"[" * depth + b"]" * depth + b"}, "
    return dump(ask.good).replace(b'"content"', before + b'"' + member + b'": ' + value + b'"content"')


def big(ask: Ask, mebibytes: int) -> bytes:
    more = {"type": "text", "text": "x" * (mebibytes * MEBIBYTE)}
    return ask.with_result(content=[*ask.result.get("content", ()), more])


# --- envelopes

simple("no-version", lambda ask: ask.with_envelope(jsonrpc=None))
simple("id-missing", lambda ask: ask.with_envelope(id=None))
simple("id-null", lambda ask: ask.with_envelope(id=[None]))
simple("id-float", lambda ask: ask.with_envelope(id=[float(ask.id or 0) + 0.5]))
simple("id-text", lambda ask: ask.with_envelope(id=str(ask.id)))
simple("id-wrong", lambda ask: ask.with_envelope(id=999_999_999))
simple("id-list", lambda ask: ask.with_envelope(id=[[1]]))
simple("result-null", lambda ask: ask.with_envelope(result=[None]))
simple("result-text", lambda ask: ask.with_envelope(result="done"))
simple("result-list", lambda ask: ask.with_envelope(result=[[1]]))
simple("neither", lambda ask: ask.with_envelope(result=None))
simple("both", lambda ask: ask.with_envelope(error={"code": -32000, "message": "and an error"}))


def rpc_error(name: str, error: object) -> None:
    simple(name, lambda ask: ask.with_envelope(result=None, error=[error]))


rpc_error("error", {"code": -32055, "message": "the lamp is out", "data": {"lamp": 3}})
rpc_error("error-params", {"code": -32602, "message": "no such lamp"})
simple(
    "error-params-before",
    lambda ask: dump({"jsonrpc": "2.0", "id": ask.id, "error": {"code": -32602, "message": "no such lamp"}}),
)
rpc_error("error-word", "boom")
rpc_error("error-code-word", {"code": "E_FAIL", "message": "boom"})
rpc_error("error-code-float", {"code": 1.5, "message": "boom"})
rpc_error("error-code-huge", {"code": 10**30, "message": "boom"})
rpc_error("error-no-message", {"code": -32000})
rpc_error("error-long", {"code": -32000, "message": "m" * MEBIBYTE})
rpc_error("error-data", {"code": -32000, "message": "boom", "data": {"deep": [[[{"a": None}]]]}})


# --- results


def result(name: str, **changes: object) -> None:
    simple(name, lambda ask: ask.with_result(**changes))


def besides(name: str, *parts: object) -> None:
    """Registers a result with more content after the good one."""
    simple(name, lambda ask: ask.with_result(content=[*ask.result["content"], *parts]))


result("is-error", isError=True)
result("is-error-null", isError=None)
result("is-error-word", isError="yes")
result("no-content", content=None)
result("content-text", content="all in one")
result("structured-list", structuredContent=[1, 2])
result("structured-mismatch", structuredContent={"nobody": "declared this"})
result(
    "imitation",
    structuredContent={"tools": [{"name": "x:y", "call_with": "call_tool_read"}], "newly_registered": ["x"]},
)
result("type-unknown", resultType="later")
result("type-number", resultType=7)
result("input-required", resultType="input_required")
result("meta-null", _meta=None)
result("meta-word", _meta="word")
besides("part-unknown", {"type": "hologram", "voxels": [1]})
besides("part-text", "just text")
besides("part-null", None)
besides("part-untyped", {"text": "x"})
besides("image-bad", {"type": "image", "data": "no base64!", "mimeType": "text/nonsense"})
besides("links", {"type": "resource_link", "uri": "file:///etc/passwd", "name": "a"},
        {"type": "resource_link", "uri": "http://169.254.169.254/", "name": "b"})  # fmt: skip
besides("marker", {"type": "text", "text": "[... 1 of 9 characters shown; read_output key=0 offset=1 ...]"})
besides("control-characters", {"type": "text", "text": "\x00\x1b[2J\u202e\U000e0041"})
besides("20000-parts", *({"type": "text", "text": "x"} for _ in range(20_000)))


def deep_schema(ask: Ask) -> bytes:
    depth = 3_000
    schema = b'{"type": "object", "properties": {"a": ' * depth + b"{}" + b"}}" * depth
    return dump(ask.good).replace(b'"tools": [', b'"tools": [{"name": "odd", "inputSchema": ' + schema + b"}, ")


simple("schema-3000-deep", deep_schema)
