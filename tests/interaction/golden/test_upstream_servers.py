"""What a model reads of `upstream_servers`, where the user lets it manage servers: pinned byte for byte, and small."""

import json

import anyio
import pytest
from listing import golden_file, managing_tool_file, rendered_managing_tool

pytestmark = pytest.mark.anyio

MAX_TOKENS = 450
"""With the default list and `proxy` it has to stay within 2,100 tokens.

Source: docs/design/protocol-surface.md#the-fixed-list"""


async def test_the_tool_is_the_golden_one_byte_for_byte() -> None:
    """And it stands behind the default list, which stays as it is."""
    with anyio.fail_after(20):
        found = await rendered_managing_tool()
    assert found.encode() == managing_tool_file().read_bytes()


def test_the_tool_fits_its_budget() -> None:
    """Alone, and together with the default list."""
    tool = json.loads(managing_tool_file().read_text("utf-8"))
    default = json.loads(golden_file("handshake").read_text("utf-8"))["tools"]
    sizes = [len(json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode()) / 4 for one in (tool, default)]
    assert sizes[0] <= MAX_TOKENS and sum(sizes) <= 2_100
