"""Counts of what the activity log records, for monitoring systems: one sink, fed with each record."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from itertools import accumulate
from typing import Any, Final, Literal

import msgspec

from smart_mcp_proxy.telemetry import Activity

OTHER: Final = "other"
"""Label of whatever is not known: a value that somebody chose may not become a label."""
BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the durations that are counted together, in seconds."""
_SERVERS: Final = 1_000
"""Servers that have been counted since the start; agents may add and remove some all the time."""

OUTCOMES: Final = frozenset(
    [
        "ok",
        "tool_error",
        "empty",
        "cancelled",
        "input_required",
        "internal",
        "access_denied",
        "ambiguous_name",
        "app_ambiguous",
        "app_only",
        "breaker_open",
        "catalog_failed",
        "code_busy",
        "code_failed",
        "code_memory",
        "code_timeout",
        "code_too_many_calls",
        "config_invalid",
        "conflict",
        "definition_changed",
        "embedding_failed",
        "frontmatter_differs",
        "hidden_characters",
        "input_failed",
        "input_not_allowed",
        "input_timeout",
        "input_unavailable",
        "intent_mismatch",
        "invalid_arguments",
        "invalid_request",
        "invalid_request_state",
        "method_not_allowed",
        "missing_extra",
        "model_only",
        "not_found",
        "other_server",
        "output_failed",
        "output_not_found",
        "own_tool",
        "profile_not_found",
        "proxy_disabled",
        "quarantined",
        "rate_limited",
        "read_only",
        "refused",
        "search_failed",
        "secret_asked",
        "secret_shown",
        "server_disabled",
        "server_not_allowed",
        "server_not_found",
        "shutting_down",
        "task_cancelled",
        "task_needs_input",
        "task_not_found",
        "too_large",
        "too_many_subscriptions",
        "tool_not_found",
        "toolset_not_found",
        "upstream_auth",
        "upstream_busy",
        "upstream_failed",
        "upstream_protocol",
        "upstream_timeout",
    ]
)
"""Outcomes of calls and searches. A test finds every code of an error in it that a call can end with."""

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
"""Those with which the gateway does not let a call through."""


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

    @property
    def number(self) -> int:
        return sum(self.counts)


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
        self._records: dict[str, int] = {}
        self._calls: dict[tuple[str, str], _Durations] = {}
        """By server and outcome, as the records have them; of what is not known under `other` only."""
        self._requests: dict[tuple[str, str, str], int] = {}
        self._scripts: dict[str, _Durations] = {}
        self._searches: dict[str, _Durations] = {}
        self._tokens = {"sent": 0, "spared": 0}

    def fold(self) -> None:
        """Count the records that were noted; never fails."""
        for record in self._noted:
            kind, outcome = record.kind, record.outcome
            self._records[kind] = self._records.get(kind, 0) + 1
            if kind == "call":
                if "variant" in record.detail:
                    key = (record.server, outcome)
                    durations = self._calls.get(key) or self._get_durations(*key)
                    durations.add(record.duration_ms / 1000)
                else:
                    self._count_other(record)
            elif kind == "search":
                self._add(self._searches, outcome, record)
                for name, tokens in _read_tokens(record.detail).items():
                    self._tokens[name] += tokens
        self._noted.clear()

    def families(self) -> list[Family]:
        """All counts as of now."""
        self.fold()
        calls = sorted(self._calls.items())
        return [
            Family(
                "mcpproxy_activity_records",
                "counter",
                "Records of the activity log, by kind.",
                ("kind",),
                [Sample((kind,), count) for kind, count in sorted(self._records.items())],
            ),
            Family(
                "mcpproxy_calls",
                "counter",
                "Calls of servers' tools, refused ones included; no server where its tool was not found.",
                ("server", "outcome"),
                [Sample(key, durations.number) for key, durations in calls],
            ),
            Family(
                "mcpproxy_refusals",
                "counter",
                "Those of the calls that were not let through to their server.",
                ("server", "outcome"),
                [Sample(key, durations.number) for key, durations in calls if key[1] in REFUSALS],
            ),
            _histogram(
                "mcpproxy_call_duration_seconds", "Calls of servers' tools.", ("server", "outcome"), self._calls
            ),
            Family(
                "mcpproxy_requests",
                "counter",
                "Requests to servers for prompts, resources and completions.",
                ("server", "method", "outcome"),
                [Sample(key, count) for key, count in sorted(self._requests.items())],
            ),
            _histogram(
                "mcpproxy_script_duration_seconds",
                "Scripts of code_execution; their calls are counted as calls.",
                ("outcome",),
                {(outcome,): found for outcome, found in self._scripts.items()},
            ),
            _histogram(
                "mcpproxy_search_duration_seconds",
                "Searches, and lists through the proxy tool.",
                ("outcome",),
                {(outcome,): found for outcome, found in self._searches.items()},
            ),
            Family(
                "mcpproxy_search_tokens",
                "counter",
                "Estimated tokens: sent in answers, and spared by not sending the whole catalog once a conversation.",
                ("kind",),
                [Sample((kind,), count) for kind, count in self._tokens.items()],
            ),
        ]

    def _get_durations(self, server: str, outcome: str) -> _Durations:
        key = (self._label_server(server), _limit_label(outcome, OUTCOMES))
        durations = self._calls.get(key)
        if durations is None:
            durations = self._calls[key] = _Durations()
        return durations

    def _count_other(self, record: Activity) -> None:
        method = record.detail.get("method")
        if method is None:
            self._add(self._scripts, record.outcome, record)
            return
        key = (
            self._label_server(record.server),
            _limit_label(str(method), _METHODS),
            _limit_label(record.outcome, OUTCOMES),
        )
        self._requests[key] = self._requests.get(key, 0) + 1

    def _add(self, groups: dict[str, _Durations], outcome: str, record: Activity) -> None:
        outcome = _limit_label(outcome, OUTCOMES)
        durations = groups.get(outcome)
        if durations is None:
            durations = groups[outcome] = _Durations()
        durations.add(record.duration_ms / 1000)

    def _label_server(self, server: str) -> str:
        """The label of a server: its name if it is, or was, configured."""
        if not server or server in self._counted:
            return server
        if len(self._counted) >= _SERVERS or server not in self._servers():
            return OTHER
        self._counted.add(server)
        return server


_METHODS: Final = frozenset(
    {
        "prompts/get",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "completion/complete",
    }
)


def _limit_label(value: str, known: Collection[str]) -> str:
    return value if value in known else OTHER


def _read_tokens(detail: Mapping[str, Any]) -> Mapping[str, int]:
    tokens: Mapping[str, int] = detail.get("tokens", {})
    return tokens


def _histogram(name: str, help: str, labels: tuple[str, ...], groups: Mapping[Any, _Durations]) -> Family:
    samples = [
        Sample(key, durations.total_s, tuple(accumulate(durations.counts))) for key, durations in sorted(groups.items())
    ]
    return Family(name, "histogram", f"{help.removesuffix('.')}, in seconds.", labels, samples)
