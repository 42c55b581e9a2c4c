"""Every fault and the answer it must get, as data.

A fault is named by the part of a session's life in which it happens (`start`, `init`, `list`, `call`; `net` for the
network) and by what happens. `where` says which faults of docs/design/faults.md it stands for.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from relay import Toxic

__all__ = ["MODES", "SAMPLE", "TOXICS", "Mode", "Place"]

OK = "ok"
TOOL_ERROR = "tool_error"
FAILED = "upstream_failed"
TIMEOUT = "upstream_timeout"
UNASKED = "upstream_protocol"
AUTH = "upstream_auth"
LIMITED = "rate_limited"
"""The server says 429: it may be asked again later."""
GONE = "tool_not_found"
UNFIT = "invalid_arguments"
HELD = "quarantined"
"""A tool that calls itself less dangerous than before waits for its user."""

EITHER = f"{FAILED} {TIMEOUT}"
"""A reply that cannot be told from noise costs the deadline; one that can is answered at once."""
ANYWHERE = "stdio http"
BOTH_ERAS = "handshake modern"


@dataclass(frozen=True)
class Place:
    """Where a fault is met: transport and protocol era of the faulty server."""

    transport: str
    era: str

    def __str__(self) -> str:
        return f"{self.transport}-{self.era}"


@dataclass(frozen=True)
class Mode:
    """One fault.

    Attributes:
        fault: `STAGE NAME`, as the faulty server's control file has it.
        where: Rules it stands for.
        answers: Accepted outcomes: `ok`, `tool_error` or an error code.
        delivery: Accepted values of the error's `delivery`.
        transports: Where it can happen.
        eras: In which it can happen.
        arguments: Of the call, besides the nonce.
        with_progress: Whether the caller asks for progress.
    """

    fault: str
    where: str
    answers: frozenset[str]
    delivery: frozenset[str]
    transports: tuple[str, ...]
    eras: tuple[str, ...]
    arguments: dict[str, Any] = field(default_factory=dict)
    with_progress: bool = False

    def __str__(self) -> str:
        return self.fault

    @property
    def stage(self) -> str:
        """Part of a session's life."""
        return self.fault.partition(" ")[0]

    @property
    def is_sent_again(self) -> bool:
        """Whether the server asks for the same request again: elsewhere, or in a new session."""
        return "redirect" in self.fault or self.fault.endswith(("session-forgotten", "post-404"))

    def places(self) -> Iterator[Place]:
        """Where the sweep meets it."""
        yield from (Place(transport, era) for transport in self.transports for era in self.eras)


MODES: list[Mode] = []
_FIT_CALL = {"pad": "a" * 40 + "!"}
"""Text on which a careless pattern takes for ever."""


def modes(
    stage: str,
    where: str,
    names: str,
    answers: str,
    delivery: str = "",
    *,
    on: str = ANYWHERE,
    eras: str = BOTH_ERAS,
    **more: Any,
) -> None:
    """Adds one mode for each of `names`; words stand for sets."""
    for name in names.split():
        MODES.append(
            Mode(
                f"{stage} {name}",
                where,
                frozenset(answers.split()),
                frozenset(delivery.split()),
                tuple(on.split()),
                tuple(eras.split()),
                **more,
            )
        )


# --- a call, whatever carries it
modes("call", "F03 F07", "hang hang-before late", TIMEOUT, "unknown")
modes("call", "F04", "slow", OK)
modes("call", "F06", "progress-for-ever", TIMEOUT, "unknown", with_progress=True)
modes("call", "F33", "progress-storm", OK, with_progress=True)
modes("call", "F32", "changed-storm", OK)
modes("call", "F35", "asks-back", OK)
modes("call", "F29", "unsolicited twice id-text", OK)
modes("call", "F29", "id-missing id-null id-float", FAILED, "unknown", on="stdio")
modes("call", "F29", "id-missing id-null id-float", OK, on="http")
modes("call", "F29", "id-wrong id-list", EITHER, "unknown")
modes("call", "F27", "bom crlf bad-utf8 surrogate no-version", OK)
modes(
    "call", "F28", "garbled garbled-id two-in-one deep result-null result-text result-list neither", FAILED, "unknown"
)
modes("call", "F28", "empty-object word utf-16", EITHER, "unknown")
modes("call", "F28", "nan", f"{OK} {FAILED}", "unknown executed")
modes("call", "F28 B92", "huge-integer deep-structured deep-edge both", f"{OK} {FAILED}", "unknown executed")
modes("call", "F29", "batch", f"{OK} {FAILED}", "unknown")
modes("call", "F30", "8-mib", OK)
modes("call", "F30", "32-mib 32-mib-id-last", FAILED, "unknown")
modes(
    "call",
    "B91",
    "error error-word error-code-word error-code-float error-code-huge error-no-message",
    FAILED,
    "executed",
)
modes("call", "B91", "error-long error-data", FAILED, "executed")
modes("call", "B91", "error-params error-params-before", FAILED, "unknown")
modes("call", "B85", "is-error is-error-word", TOOL_ERROR)
modes("call", "B96", "type-unknown type-number", FAILED, "executed")
modes("call", "B85", "input-required", UNASKED, "unknown")
modes("call", "B86 B87 B88", "is-error-null no-content content-text part-unknown part-text part-null part-untyped", OK)
modes("call", "B87 B89 B93 B94", "image-bad links structured-list structured-mismatch imitation", OK)
modes("call", "B81 B95", "marker control-characters meta-null meta-word", OK)
modes("call", "B90", "20000-parts", OK)

# --- a call of a child process
modes(
    "call",
    "F10 F14",
    "crash crash-before killed killed-before exit-clean orphan-then-crash",
    FAILED,
    "unknown",
    on="stdio",
)
modes("call", "F11 F08", "crash-mid-line late-after-crash", FAILED, "unknown", on="stdio")
modes("call", "F15", "exit-after", OK, on="stdio")
modes("call", "F16", "crash-on-effect", FAILED, "unknown", on="stdio")
modes("call", "F13", "close-stdout", FAILED, "unknown", on="stdio")
modes("call", "F09 F05 F13 F28", "stopped close-stdin drip no-newline", TIMEOUT, "unknown", on="stdio")
modes("call", "F28", "split-line pretty noise-before-on-line", EITHER, "unknown", on="stdio")
modes("call", "F26 F34", "noise noise-storm stderr-storm stderr-one-line", OK, on="stdio")

# --- a call over HTTP
modes("call", "F15", "close-after", OK, on="http")
modes("call", "F20", "401", AUTH, "not_sent", on="http")
modes("call", "F20", "404 404-after", FAILED, "unknown", on="http")
modes("call", "F20", "403 405 413 500 500-before 502 503 999", FAILED, "unknown not_sent", on="http")
modes("call", "F20", "429 429-date", LIMITED, "unknown not_sent", on="http")
modes("call", "F21", "session-forgotten", f"{OK} {FAILED}", "not_sent", on="http", eras="handshake")
_REDIRECTS = "elsewhere 308-elsewhere loop file nowhere"
modes("call", "F22", "redirect-to-get redirect-see-other", FAILED, "unknown", on="http")
modes("call", "F22", " ".join(f"redirect-{way}" for way in _REDIRECTS.split()), FAILED, "not_sent", on="http")
modes("call", "B91", "rpc-error-400", FAILED, "unknown", on="http")
modes("call", "F19", "reset-before reset reset-in-head reset-in-body close-silently truncated no-http",
      FAILED, "unknown", on="http")  # fmt: skip
modes("call", "F19", "length-short length-word", FAILED, "unknown", on="http")
modes("call", "F19", "chunk-bad chunk-bad-later", EITHER, "unknown", on="http")
modes("call", "F19", "length-missing answers-1xx", OK, on="http")
modes("call", "F19", "header-200-kb headers-10000", f"{OK} {FAILED}", "unknown", on="http")
modes("call", "F28", "html 202 204 empty", FAILED, "unknown", on="http")
modes("call", "F28", "wrong-type no-type", f"{OK} {FAILED}", "unknown", on="http")
modes("call", "F31 F30", "gzip-bomb endless-body sse-endless-event", FAILED, "unknown", on="http")
modes("call", "F05", "drip drip-head sse-drip sse-keep-alive", TIMEOUT, "unknown", on="http")
modes("call", "F19", "sse-cut sse-reset sse-half-event", FAILED, "unknown", on="http")
modes("call", "F19", "sse-carriage-returns", OK, on="http")
modes("call", "F19", "sse-resumable-cut", EITHER, "unknown", on="http")
modes("call", "F10", "crash crash-before", FAILED, "unknown", on="http")

# --- a call over the older transport: answers come on one stream for all, which the session stands and falls with
_SSE: dict[str, Any] = {"on": "sse", "eras": "handshake"}
modes("call", "F03 F07", "hang late", TIMEOUT, "unknown", **_SSE)
modes("call", "F04 B85 F35 F29", "slow is-error asks-back unsolicited twice", f"{OK} {TOOL_ERROR}", **_SSE)
modes("call", "F28 F29", "garbled id-wrong result-null", EITHER, "unknown executed", **_SSE)
modes("call", "B91", "error", FAILED, "executed", **_SSE)
modes("call", "F30", "8-mib", OK, **_SSE)
modes("call", "F30", "32-mib stream-endless-event", FAILED, "unknown", **_SSE)
modes("call", "F10 F19", "stream-cut stream-reset stream-crash", FAILED, "unknown", **_SSE)
modes("call", "F20 F22", "post-500 post-404 post-redirect", FAILED, "unknown not_sent", **_SSE)
_ENDPOINTS = "missing elsewhere other-port https file garbled"
modes("init", "F22 F01", " ".join(f"endpoint-{kind}" for kind in _ENDPOINTS.split()), FAILED, "not_sent", **_SSE)

# --- the network in between
TOXICS = {
    "latency": Toxic(latency_s=0.3),
    "latency-long": Toxic(latency_s=20.0),
    "drip": Toxic(drip_s=0.05),
    "reset": Toxic(reset_after=30),
    "reset-at-once": Toxic(reset_after=0),
    "truncate": Toxic(truncate_after=30),
    "truncate-in-body": Toxic(truncate_after=140),
    "half-open": Toxic(is_silent=True),
    "refuse": Toxic(is_refusing=True, reset_after=0),
}
modes("net", "F19", "latency", OK, on="http")
modes("net", "F05 F23", "latency-long drip half-open", TIMEOUT, "unknown", on="http")
modes("net", "F19", "reset reset-at-once truncate truncate-in-body refuse", FAILED, "unknown not_sent", on="http")

# --- the tool list: one odd tool costs that tool, a bad list leaves the last good one
_ODD = "null text array true number wrong-type type-list properties-list missing empty dialect vocabulary"
modes("list", "B67 B68 B70", " ".join(f"schema-{kind}" for kind in _ODD.split()), OK)
modes("list", "B69", "ref-remote ref-loop ref-tree schema-3000-deep schema-wide", OK)
modes("list", "B69", "schema-deep", FAILED, "not_sent")
modes("list", "B69", "pattern-slow pattern-slower", f"{OK} {UNFIT}", "not_sent", arguments=_FIT_CALL)
modes("list", "B71", "header-crlf header-on-object header-twice header-good", OK)
modes("list", "B72 B73", "duplicates names-odd names-typed tool-null tool-text tool-list", OK)
modes("list", "B74 B81", "description-huge description-lines description-hidden description-number renamed-title", OK)
modes("list", "B75", "5000-tools", OK)
modes("list", "B76", "tools-null tools-object tools-number", OK)
modes("list", "B77", "cursor-same cursor-empty cursor-number cursor-huge cursor-null cursor-new", OK)
modes("list", "F15", "more-read-only", OK)
modes("list", "B78", "none", GONE, "not_sent")
modes("list", "B79", "annotations-odd annotations-list meta-list", OK)
modes("list", "B79", "annotations-both", HELD, "not_sent")
modes("list", "B80 B82", "output-invalid output-number icons", OK)
modes("list", "F02", "hang slow garbled error error-word result-null result-list deep id-wrong 32-mib asks-back", OK)
modes("list", "F02", "crash crash-mid-line close-stdout", f"{OK} {FAILED}", "unknown not_sent", on="stdio")
modes("list", "F02", "500 html reset truncated drip gzip-bomb sse-cut 429 403 redirect-elsewhere", OK, on="http")

# --- the beginning of a session
modes("init", "F01", "hang hang-before garbled empty-object word error error-word result-null id-wrong 32-mib neither",
      FAILED, "not_sent")  # fmt: skip
modes("init", "F04 F35", "slow bom asks-back unsolicited id-text no-version", OK)
modes("init", "F24", "wrong-version version-number", FAILED, "not_sent")
modes("init", "B83", "no-tools capabilities-null", GONE, "not_sent")
modes("init", "B83 B84", "tools-true big-name info-list long-instructions", OK)
modes("init", "F10 F12", "crash killed crash-mid-line close-stdout", FAILED, "not_sent", on="stdio")
modes("init", "F26 F34", "noise stderr-storm", OK, on="stdio")
modes("init", "F20", "401", AUTH, "not_sent", on="http")
modes("init", "F20 F22", "403 404 405 429 500 503 redirect-elsewhere html 202 204 empty", FAILED, "not_sent", on="http")
modes(
    "init",
    "F19 F31",
    "reset-before reset truncated no-http gzip-bomb drip drip-head sse-cut",
    FAILED,
    "not_sent",
    on="http",
)
modes("start", "F12 F13", "exit-zero exit-three abort silent-end deaf deaf-to-signals", FAILED, "not_sent", on="stdio")
modes("start", "F26 F34", "banner stderr-first", OK, on="stdio")
modes("start", "F24", "downgrade", OK, on="stdio", eras="modern")

SAMPLE = frozenset(
    f"{stage} {name}"
    for stage, names in {
        "call": "hang late progress-storm changed-storm asks-back unsolicited id-null garbled bad-utf8 32-mib error "
        "type-unknown part-null crash crash-on-effect exit-after "
        "close-after orphan-then-crash late-after-crash noise 401 429 session-forgotten reset "
        "redirect-elsewhere truncated gzip-bomb sse-cut stream-cut post-500",
        "net": "truncate half-open refuse",
        "list": "schema-null pattern-slow cursor-same none 500 tools-null hang",
        "init": "hang garbled no-tools 401 503 endpoint-missing endpoint-elsewhere",
        "start": "exit-three deaf banner",
    }.items()
    for name in names.split()
)
"""One or more of each group, for every run of the tests."""
