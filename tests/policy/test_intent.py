"""The whole decision table: which call tool fits, and which calls are refused."""

from itertools import product
from typing import Any, get_args

import pytest

from smart_mcp_proxy.models import CallVariant, Intent, ToolKey
from smart_mcp_proxy.policy import call_with, check_intent, decide
from smart_mcp_proxy.policy.intent import REASON_LIMIT_CHARS, SENSITIVITIES

KEY = ToolKey("a", "b")
HINTS = [True, False, None]
VARIANTS = get_args(CallVariant)


def annotations(read_only: bool | None, destructive: bool | None) -> dict[str, bool]:
    """Hints as a server sends them; None is absent."""
    pairs = {"readOnlyHint": read_only, "destructiveHint": destructive}
    return {name: value for name, value in pairs.items() if value is not None}


@pytest.mark.parametrize(("read_only", "destructive"), list(product(HINTS, HINTS)))
def test_call_with(read_only: bool | None, destructive: bool | None) -> None:
    """Destructive wins, then read-only; anything else, silence included, is a write."""
    expected = "destructive" if destructive else "read" if read_only else "write"
    assert call_with(annotations(read_only, destructive)) == expected


@pytest.mark.parametrize("is_strict", [True, False], ids=["strict", "lenient"])
@pytest.mark.parametrize(("variant", "read_only", "destructive"), list(product((*VARIANTS, None), HINTS, HINTS)))
def test_every_row_of_the_table(
    variant: CallVariant | None, read_only: bool | None, destructive: bool | None, is_strict: bool
) -> None:
    """Read needs `readOnlyHint: true` unless lenient; read and write never reach a destructive tool; a user may."""
    hints = annotations(read_only, destructive)
    is_allowed = {
        None: True,
        "destructive": True,
        "write": destructive is not True,
        "read": destructive is not True and (read_only is True or not is_strict),
    }[variant]
    decision = decide(KEY, variant, hints, Intent(), is_strict=is_strict)
    assert decision.allowed is is_allowed
    if not is_allowed:
        assert "'a:b'" in decision.reason
        assert f"call_tool_{call_with(hints)}" in decision.hint


@pytest.mark.parametrize("value", [1, "true", "yes", [True]], ids=repr)
def test_only_a_true_hint_counts(value: Any) -> None:
    """Whatever else a server writes there says nothing."""
    assert call_with({"readOnlyHint": value, "destructiveHint": value}) == "write"
    assert not decide(KEY, "read", {"readOnlyHint": value}, Intent()).allowed
    assert decide(KEY, "write", {"destructiveHint": value}, Intent()).allowed


@pytest.mark.parametrize("stated", [*VARIANTS, None, "delete", ""])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_second_key_must_fit_where_it_is_given(variant: CallVariant, stated: str | None) -> None:
    """A mismatch is refused, its absence never."""
    decision = decide(KEY, variant, {"readOnlyHint": True}, Intent(operation_type=stated))
    assert decision.allowed is (stated in (variant, None))
    if not decision.allowed:
        assert repr(stated) in decision.reason
        assert f"call_tool_{variant}" in decision.reason


def test_a_users_own_call_needs_no_second_key() -> None:
    """The two keys are for agents."""
    assert decide(KEY, None, {"destructiveHint": True}, Intent(operation_type="read")).allowed


@pytest.mark.parametrize("sensitivity", SENSITIVITIES)
def test_known_sensitivities_pass(sensitivity: str) -> None:
    """They are recorded, not judged."""
    assert check_intent(Intent(data_sensitivity=sensitivity)).allowed


@pytest.mark.parametrize("sensitivity", ["", "secret", "PUBLIC"])
def test_an_unknown_sensitivity_is_refused_with_the_known_ones(sensitivity: str) -> None:
    """Whoever calls."""
    decision = check_intent(Intent(data_sensitivity=sensitivity))
    assert not decision.allowed
    assert repr(sensitivity) in decision.reason
    assert all(known in decision.hint for known in SENSITIVITIES)


def test_a_reason_has_a_length() -> None:
    """1000 characters pass, one more does not, and the reason itself is not repeated."""
    assert check_intent(Intent(reason="r" * REASON_LIMIT_CHARS)).allowed
    decision = check_intent(Intent(reason="r" * (REASON_LIMIT_CHARS + 1)))
    assert not decision.allowed
    assert "1001 characters" in decision.reason
    assert "rrr" not in decision.reason
