"""What the judge of the conformance runs counts as lost: whatever the fixture passes and the gateway does not."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "conformance.py"
Checks = dict[str, bool]
PASSED = {"a": True, "b": True}


def loaded(script: Path) -> ModuleType:
    """A script as a module; its folder is not searched for others."""
    spec = importlib.util.spec_from_file_location(f"{script.stem}_script", script)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


judged_by: Any = loaded(SCRIPT)
sys.path.insert(0, str(SCRIPT.parent))  # the second script has much of the first
client_judged_by: Any = loaded(SCRIPT.with_name("conformance_client.py"))
sys.path.remove(str(SCRIPT.parent))


def comparison(through: Checks | None, direct: Checks | None = None) -> Any:
    """One version with one scenario; None where it was not run."""
    runs = [{} if checks is None else {"tools": checks} for checks in (direct or PASSED, through)]
    return judged_by.Comparison("2026-07-28", *runs)


@pytest.mark.parametrize(
    ("through", "lost"),
    [
        (PASSED, []),
        ({"a": True, "b": False}, ["tools:b"]),
        ({"a": True}, ["tools:b"]),
        ({}, ["tools:a", "tools:b"]),
        (None, ["tools:not-run"]),
        (PASSED | {"c": False}, ["tools:c"]),
        (PASSED | {"c": True}, []),
    ],
    ids=["same", "failed", "vanished", "all vanished", "not run", "failed anew", "passed anew"],
)
def test_everything_that_the_fixture_passes_has_to_pass_through_the_gateway(
    through: Checks | None, lost: list[str]
) -> None:
    """A check that is not there did not pass."""
    assert list(comparison(through).lost()) == lost


def test_what_the_fixture_fails_itself_is_not_the_gateways_loss() -> None:
    """Whether it fails through the gateway too, or is not there."""
    for through in ({"a": True, "b": False}, {"a": True}):
        assert list(comparison(through, {"a": True, "b": False}).lost()) == []


def test_a_check_that_vanished_is_a_problem_until_the_baseline_explains_it() -> None:
    """By itself or with its scenario; an explanation of what is not lost is a problem of its own."""
    assert judged_by.judge([comparison({"a": True})], {}) == ["2026-07-28: the gateway fails tools:b"]
    assert judged_by.judge([comparison({"a": True})], {"tools:b": "why"}) == []
    assert judged_by.judge([comparison({"a": True})], {"tools": "why"}) == []
    assert judged_by.judge([comparison(PASSED)], {"tools:b": "why"}) == [
        "baseline.yml explains tools:b, which does not fail"
    ]


def test_a_scenario_for_clients_fails_until_the_baseline_explains_it() -> None:
    """By check or as a whole; an explanation of what passes is a problem, at whatever version it does."""
    outcomes = [
        client_judged_by.Outcome(version, "auth/x", PASSED | {"b": is_ok})
        for version, is_ok in (("1", True), ("2", False))
    ]
    assert client_judged_by.judge(outcomes, {}) == ["2: the gateway fails auth/x:b"]
    assert (
        client_judged_by.judge(outcomes, {"auth/x:b": "why"})
        == client_judged_by.judge(outcomes, {"auth/x": "why"})
        == []
    )
    assert client_judged_by.judge(outcomes[:1], {"auth/x:b": "why"}) == [
        "baseline.yml explains auth/x:b, which does not fail"
    ]


def test_an_agent_that_fails_by_itself_is_a_problem_of_its_own() -> None:
    """It shows nothing of the gateway then; no entry of the baseline explains it."""
    outcome = client_judged_by.Outcome("1", "sep-2640-x", PASSED, {"a": True, "b": False})
    assert client_judged_by.judge([outcome], {}) == ["1: the agent itself fails sep-2640-x:b"]


def test_the_baseline_tells_scenarios_for_clients_from_those_for_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file; each run judges its own part of it."""
    file = tmp_path / "baseline.yml"
    file.write_text("# why\nlists:a: one\nclient:auth/x: two\n")
    monkeypatch.setattr(judged_by, "BASELINE", file)
    assert judged_by.read_baseline() == {"lists:a": "one"}
    assert judged_by.read_baseline("client") == {"auth/x": "two"}
