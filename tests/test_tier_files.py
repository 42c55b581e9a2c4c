"""A tier leaves out only files that have none of its tests."""

import pytest
from tier_files import may_have_tests

QUICK = "not soak and not clients and not image and not long"
LONG = "long and not soak and not clients and not image"
MARKED, WHOLE, PLAIN = "@pytest.mark.{}\n", "pytestmark = [pytest.mark.anyio, pytest.mark.{}]\n", "def test_a(): ...\n"


@pytest.mark.parametrize(
    ("text", "tier", "may"),
    [
        (PLAIN, "", True),
        (PLAIN, QUICK, True),
        (PLAIN, LONG, True),  # for the fixtures that it asks for
        (PLAIN, "clients and not soak", False),
        (MARKED.format("long"), QUICK, True),
        (WHOLE.format("long"), QUICK, False),
        (WHOLE.format("soak"), QUICK, False),
        (WHOLE.format("long"), LONG, True),
        (WHOLE.format("clients"), "clients and not soak", True),
        (MARKED.format("image"), "image and not soak", True),
        (WHOLE.format("longer"), QUICK, True),
    ],
)
def test_files_of_a_tier(text: str, tier: str, *, may: bool) -> None:
    """By the marks that stand in them."""
    assert may_have_tests(text, tier) is may
