"""Where this program is found again."""

import pytest

from smart_mcp_proxy.desktop.spelling import explain_passing


@pytest.mark.parametrize(
    ("prefix", "advice"),
    [
        ("/home/ann/.cache/uv/archive-v0/Xb2", "uv tool install"),
        ("/home/ann/.cache/uv/builds-v0/.tmpX", "uv tool install"),
        ("/home/ann/.local/share/pipx/.cache/8d1", "pipx install"),
        ("/home/ann/.cache/pipx/8d1", "pipx install"),
    ],
)
def test_what_runs_out_of_a_cache_is_told(prefix: str, advice: str) -> None:
    """With what installs it where it stays."""
    told = explain_passing(prefix)
    assert prefix in told and told.endswith(f"{advice} PATH_OF_CHECKOUT_OR_WHEEL")


@pytest.mark.parametrize("prefix", ["/home/ann/.local/share/uv/tools/smart-mcp-proxy", "/home/ann/project/.venv"])
def test_what_stays_where_it_is_needs_no_word(prefix: str) -> None:
    """An installation of its own."""
    assert explain_passing(prefix) == ""
