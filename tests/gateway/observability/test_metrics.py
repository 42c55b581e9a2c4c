"""Counts of activity records: what they are counted under, and that no chosen value becomes a label."""

import ast
from typing import Any

import pytest
from syntax_trees import package_trees

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.gateway.observability.metrics import OTHER, OUTCOMES, REFUSALS, Family, Metrics
from smart_mcp_proxy.telemetry import Activity

NOT_OF_CALLS = frozenset(
    {
        "activity_not_found",
        "batch_full",
        "batch_unsupported",
        "config_read_only",
        "form_expired",
        "server_process",
        "host_not_allowed",
        "http_method_not_allowed",
        "invalid_entry",
        "invalid_id",
        "link_used",
        "not_json",
        "not_operator",
        "operator_only",
        "origin_not_allowed",
        "page_not_served",
        "registry_failed",
        "registry_server_not_found",
        "registry_unauthorized",
        "registry_unreachable",
        "revision_conflict",
        "role_required",
        "server_deleted",
        "server_deprecated",
        "server_exists",
        "sign_in_unknown",
        "token_exists",
        "token_not_found",
        "too_many_connections",
        "too_many_sessions",
        "unauthorized",
        "unavailable",
        "unsupported_media_type",
        "unsupported_server",
        "usage",
        "version_not_found",
    }
)
"""Codes of REST, of the transports and of the command line: no call or search ends with them."""


def call(server: str, outcome: str, ms: float = 1.0, **detail: Any) -> Activity:
    return Activity("call", "local", "x", outcome, ms, 0.0, detail or {"variant": "read"}, server=server)


def samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    (family,) = [family for family in metrics.families() if family.name == name]
    return {sample.labels: sample.value for sample in family.samples}


def test_calls_are_counted_by_server_and_outcome_with_their_durations() -> None:
    """Refused ones too, which are a family of their own besides."""
    metrics = Metrics(lambda: {"a", "b"})
    for record in (call("a", "ok", 3.0), call("a", "ok", 40.0), call("b", "tool_error"), call("a", "quarantined", 0.1)):
        metrics.note(record)
    assert samples(metrics, "mcpproxy_calls") == {("a", "ok"): 2, ("a", "quarantined"): 1, ("b", "tool_error"): 1}
    assert samples(metrics, "mcpproxy_refusals") == {("a", "quarantined"): 1}
    (family,) = [family for family in metrics.families() if family.name == "mcpproxy_call_duration_seconds"]
    ok = next(sample for sample in family.samples if sample.labels == ("a", "ok"))
    assert ok.value == pytest.approx(0.043)
    assert ok.buckets[:6] == (0, 0, 1, 1, 1, 2) and ok.buckets[-1] == 2


def test_requests_scripts_and_searches_are_no_calls_of_tools() -> None:
    """All are calls or searches in the log; each has its own metric."""
    metrics = Metrics(lambda: {"a"})
    metrics.note(call("a", "ok", method="prompts/get"))
    metrics.note(call("", "code_failed", language="python"))
    tokens = {"sent": 10, "spared": 100}
    metrics.note(Activity("search", "local", "q", "empty", 1.0, 0.0, {"tools": [], "tokens": tokens}))
    metrics.note(Activity("session", "local", "client", "ok", 0.0, 0.0))
    assert samples(metrics, "mcpproxy_calls") == {}
    assert samples(metrics, "mcpproxy_requests") == {("a", "prompts/get", "ok"): 1}
    assert samples(metrics, "mcpproxy_script_duration_seconds").keys() == {("code_failed",)}
    assert samples(metrics, "mcpproxy_search_duration_seconds").keys() == {("empty",)}
    assert samples(metrics, "mcpproxy_search_tokens") == {("sent",): 10, ("spared",): 100}
    assert samples(metrics, "mcpproxy_activity_records") == {("call",): 2, ("search",): 1, ("session",): 1}


def test_no_value_that_somebody_chose_becomes_a_label() -> None:
    """Hostile names of servers, methods and outcomes share one label each; nothing of them is kept."""
    metrics = Metrics(lambda: {"a"})
    for number in range(5_000):
        metrics.note(call(f"evil{number}", "ok"))
        metrics.note(call("a", f"evil{number}"))
        metrics.note(call("a", "ok", method=f"evil{number}"))
        metrics.note(Activity("search", "local", "q", f"evil{number}", 1.0, 0.0))
    assert samples(metrics, "mcpproxy_calls") == {(OTHER, "ok"): 5_000, ("a", OTHER): 5_000}
    assert samples(metrics, "mcpproxy_requests") == {("a", OTHER, "ok"): 5_000}
    assert "evil" not in repr(metrics.families())


def test_servers_that_come_and_go_are_counted_up_to_a_limit() -> None:
    """Agents may add and remove servers for as long as the gateway runs."""
    now: set[str] = set()
    metrics = Metrics(lambda: now)
    for number in range(3_000):
        now = {f"s{number}"}
        metrics.note(call(f"s{number}", "ok"))
    counted = samples(metrics, "mcpproxy_calls")
    assert len(counted) <= 1_001 and sum(counted.values()) == 3_000
    assert counted[OTHER, "ok"] >= 1_999


def codes() -> set[str]:
    """Every code of an error that the source names."""
    found = {"internal"}
    for tree in package_trees().values():
        for node in ast.walk(tree):
            value: ast.expr | None = None
            if (isinstance(node, ast.keyword) and node.arg == "code") or (
                isinstance(node, ast.Assign)
                and any(isinstance(one, ast.Name) and one.id == "code" for one in node.targets)
            ):
                value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
                found.add(value.value)
    return found


@pytest.mark.long  # half a second of work and more
def test_every_code_that_a_call_can_end_with_is_a_known_outcome() -> None:
    """A new code is a label of its own, or is said to be none of calls."""
    assert codes() >= {"quarantined", "definition_changed", ProxyError.code}, "the source is read"
    assert codes() - OUTCOMES - NOT_OF_CALLS == set()
    assert REFUSALS < OUTCOMES


def test_families_say_what_they_count() -> None:
    """Each has a name of ours, help, and as many values for labels as it has labels."""
    metrics = Metrics(lambda: {"a"})
    metrics.note(call("a", "ok"))
    found: list[Family] = metrics.families()
    assert len({family.name for family in found}) == len(found)
    for family in found:
        assert family.name.startswith("mcpproxy_") and family.help
        assert all(len(sample.labels) == len(family.labels) for sample in family.samples)
