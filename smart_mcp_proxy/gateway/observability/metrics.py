"""Counts of what the activity log records, for monitoring systems: one sink, fed with each record."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from itertools import accumulate
from typing import Final, Literal

import msgspec

from smart_mcp_proxy.telemetry import Activity

OTHER: Final = "other"
"""Label of whatever is not known: a value that somebody chose may not become a label."""
BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the durations that are counted together, in seconds."""
_SERVERS: Final = 1_000
"""Servers that have been counted since the start; agents may add and remove some all the time."""

REFUSALS: Final = frozenset(
    [
        "access_denied",
        "ambiguous_name",
        "app_only",
        "breaker_open",
        "definition_changed",
        "frontmatter_differs",
        "hidden_characters",
        "intent_mismatch",
        "invalid_arguments",
        "model_only",
        "other_server",
        "quarantined",
        "rate_limited",
        "read_only",
        "refused",
        "server_disabled",
        "server_not_allowed",
        "shutting_down",
        "tool_not_found",
    ]
)
"""Outcomes of calls that the gateway does not let through."""

OUTCOMES: Final = REFUSALS | frozenset(
    [
        "ok",
        "tool_error",
        "empty",
        "cancelled",
        "input_required",
        "internal",
        "app_ambiguous",
        "catalog_failed",
        "code_busy",
        "code_failed",
        "code_memory",
        "code_timeout",
        "code_too_many_calls",
        "config_invalid",
        "conflict",
        "embedding_failed",
        "input_failed",
        "input_not_allowed",
        "input_timeout",
        "input_unavailable",
        "invalid_request",
        "invalid_request_state",
        "method_not_allowed",
        "missing_extra",
        "not_found",
        "output_failed",
        "output_not_found",
        "own_tool",
        "profile_not_found",
        "proxy_disabled",
        "search_failed",
        "secret_asked",
        "secret_shown",
        "server_not_found",
        "task_cancelled",
        "task_needs_input",
        "task_not_found",
        "too_large",
        "too_many_subscriptions",
        "toolset_not_found",
        "upstream_auth",
        "upstream_busy",
        "upstream_failed",
        "upstream_protocol",
        "upstream_timeout",
    ]
)
"""Outcomes of calls and searches. A test finds every code of an error in it that a call can end with."""
_METHODS: Final = frozenset(
    {"prompts/get", "resources/read", "resources/subscribe", "resources/unsubscribe", "completion/complete"}
)


class Sample(msgspec.Struct, frozen=True):
    """Sample of a metric family: one value with its labels.

    Attributes:
        labels: In the order of the family's.
        value: The figure; of a histogram the sum.
        buckets: Of a histogram: how many were at most as large as each bound, and all of them last.
    """

    labels: tuple[str, ...]
    value: float
    buckets: tuple[int, ...] = ()


class Family(msgspec.Struct, frozen=True):
    """Metric family: a metric with all its samples.

    Attributes:
        name: Without the suffixes that the format adds.
        kind: Of the metric.
        help: What it counts.
        labels: Names of the labels.
        samples: The values.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...]
    samples: list[Sample]


class _Durations:
    """Durations that are counted together."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total_s += seconds


class Metrics:
    """Counts activity records.

    It grows with the number of configured servers and known outcomes alone. Records are noted while calls are under way
    and counted a few hundred at a time, so that no call waits for it.

    Args:
        servers: The configured servers' names; a look-up.

    Attributes:
        note: Takes one record, to be counted; never fails.
    """

    def __init__(self, servers: Callable[[], Collection[str]]) -> None:
        self._noted: list[Activity] = []
        self.note: Callable[[Activity], None] = self._noted.append
        self._servers = servers
        self._counted: set[str] = set()
        self._records = Counter[tuple[str, ...]]()
        self._calls = defaultdict[tuple[str, ...], _Durations](_Durations)
        """By server and outcome, as the records have them; of what is not known under `other` only."""
        self._requests = Counter[tuple[str, ...]]()
        self._scripts = defaultdict[tuple[str, ...], _Durations](_Durations)
        self._searches = defaultdict[tuple[str, ...], _Durations](_Durations)
        self._tokens = Counter[tuple[str, ...]]({("sent",): 0, ("spared",): 0})

    def fold(self) -> None:
        """Count the records that were noted; never fails."""
        for record in self._noted:
            detail, seconds = record.detail, record.duration_ms / 1000
            outcome = _limit_label(record.outcome, OUTCOMES)
            self._records[record.kind,] += 1
            if record.kind == "search":
                self._searches[outcome,].add(seconds)
                self._tokens.update({(name,): tokens for name, tokens in detail.get("tokens", {}).items()})
            elif record.kind == "call" and "variant" in detail:
                self._calls[self._label_server(record.server), outcome].add(seconds)
            elif record.kind == "call" and (method := detail.get("method")) is not None:
                self._requests[self._label_server(record.server), _limit_label(str(method), _METHODS), outcome] += 1
            elif record.kind == "call":
                self._scripts[outcome,].add(seconds)
        self._noted.clear()

    def families(self) -> list[Family]:
        """All counts as of now."""
        self.fold()
        calls = {key: sum(durations.counts) for key, durations in self._calls.items()}
        refused = {key: count for key, count in calls.items() if key[1] in REFUSALS}
        return [
            _counter("mcpproxy_activity_records", "Records of the activity log, by kind.", ("kind",), self._records),
            _counter(
                "mcpproxy_calls",
                "Calls of servers' tools, refused ones included; no server where its tool was not found.",
                ("server", "outcome"),
                calls,
            ),
            _counter(
                "mcpproxy_refusals",
                "Those of the calls that were not let through to their server.",
                ("server", "outcome"),
                refused,
            ),
            _histogram("mcpproxy_call_duration_seconds", "Calls of servers' tools", ("server", "outcome"), self._calls),
            _counter(
                "mcpproxy_requests",
                "Requests to servers for prompts, resources and completions.",
                ("server", "method", "outcome"),
                self._requests,
            ),
            _histogram(
                "mcpproxy_script_duration_seconds",
                "Scripts of code_execution; their calls are counted as calls",
                ("outcome",),
                self._scripts,
            ),
            _histogram(
                "mcpproxy_search_duration_seconds",
                "Searches, and lists through the proxy tool",
                ("outcome",),
                self._searches,
            ),
            _counter(
                "mcpproxy_search_tokens",
                "Estimated tokens: sent in answers, and spared by not sending the whole catalog once a conversation.",
                ("kind",),
                self._tokens,
            ),
        ]

    def _label_server(self, server: str) -> str:
        """The label of a server: its name if it is, or was, configured."""
        if not server or server in self._counted:
            return server
        if len(self._counted) >= _SERVERS or server not in self._servers():
            return OTHER
        self._counted.add(server)
        return server


def _limit_label(value: str, known: Collection[str]) -> str:
    return value if value in known else OTHER


def _counter(name: str, help: str, labels: tuple[str, ...], counts: Mapping[tuple[str, ...], int]) -> Family:
    return Family(name, "counter", help, labels, [Sample(key, count) for key, count in sorted(counts.items())])


def _histogram(name: str, help: str, labels: tuple[str, ...], groups: Mapping[tuple[str, ...], _Durations]) -> Family:
    samples = [
        Sample(key, durations.total_s, tuple(accumulate(durations.counts))) for key, durations in sorted(groups.items())
    ]
    return Family(name, "histogram", f"{help}, in seconds.", labels, samples)
