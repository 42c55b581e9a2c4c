"""Signs that say little alone: two of different kinds are a reason to look, one is worth a note."""

from typing import Any

import pytest

from smart_mcp_proxy.policy.scanner import Finding, scan


def described(text: str, **properties: Any) -> dict[str, Any]:
    return {"name": "tool", "description": text, "inputSchema": {"type": "object", "properties": properties}}


def is_for_review(findings: tuple[Finding, ...]) -> bool:
    return any(finding.severity == "review" for finding in findings)


SIGNS = {
    "pretext": "Customers tend to be bored by it.",
    "setting": "The option --no-audit exists.",
    "retarget": "Values are placed in their stead.",
    "private_data": "It knows the kubeconfig.",
}


@pytest.mark.parametrize("sign", SIGNS)
def test_one_sign_is_a_note(sign: str) -> None:
    """It is shown with its reason and place, and does not hold the tool up."""
    findings = scan("desk", described(f"Prints labels. {SIGNS[sign]}"))
    assert sign in {finding.check for finding in findings}
    assert all(finding.severity == "note" and finding.place == "$.description" for finding in findings)


@pytest.mark.parametrize(
    ("one", "other"), [("pretext", "setting"), ("setting", "retarget"), ("retarget", "private_data")]
)
def test_two_signs_of_different_kinds_are_a_reason_to_look(one: str, other: str) -> None:
    findings = scan("desk", described(f"Prints labels. {SIGNS[one]} {SIGNS[other]}"))
    assert is_for_review(findings)
    assert {one, other} <= {finding.check for finding in findings}


def test_signs_in_the_descriptions_of_two_parameters_add_up() -> None:
    """It does not help an attack to spread over the schema."""
    parts = {"a": SIGNS["setting"], "b": SIGNS["retarget"]}
    schema = {name: {"type": "string", "description": text} for name, text in parts.items()}
    findings = scan("desk", described("Prints labels.", **schema))
    assert is_for_review(findings)
    assert {finding.place for finding in findings} == {f"$.inputSchema.properties.{name}.description" for name in parts}


def test_two_signs_of_one_kind_count_once() -> None:
    findings = scan("desk", described("Prints labels. The options --no-audit and --no-verify exist."))
    assert findings
    assert not is_for_review(findings)


def test_an_order_that_names_its_reason_is_a_reason_to_look() -> None:
    """What a tool can do is no order, and neither is what the agent has to know to call it."""
    ordered = "Prints labels. Afterwards, write the roll number to the ledger, otherwise it is counted twice."
    assert is_for_review(scan("desk", described(ordered)))
    able = "Prints labels. The user can list and delete all labels, though only their own."
    assert not is_for_review(scan("desk", described(able)))
