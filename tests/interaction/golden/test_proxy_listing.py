"""What a model reads of `proxy`, where the operator lists it: pinned byte for byte, and small."""

import json

import anyio
import pytest
from listing import golden_file, managing_tool_file, proxy_tool_file, rendered_proxy_tool

pytestmark = pytest.mark.anyio

MAX_TOKENS = 350
MAX_TOKENS_TOGETHER = 2_100
"""Of the default list, `proxy` and `upstream_servers`. Source: docs/design/protocol-surface.md#the-fixed-list"""


async def test_the_tool_is_the_golden_one_byte_for_byte() -> None:
    """And it stands behind the default list, which stays as it is."""
    with anyio.fail_after(20):
        found = await rendered_proxy_tool()
    assert found.encode() == proxy_tool_file().read_bytes()


def test_the_tool_fits_its_budget() -> None:
    """Alone, and together with all others that a list may hold."""
    tool = json.loads(proxy_tool_file().read_text("utf-8"))
    managing = json.loads(managing_tool_file().read_text("utf-8"))
    default = json.loads(golden_file("handshake").read_text("utf-8"))["tools"]
    sizes = [
        len(json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode()) / 4
        for one in (tool, managing, default)
    ]
    assert sizes[0] <= MAX_TOKENS
    assert sum(sizes) <= MAX_TOKENS_TOGETHER
    assert len(tool["description"].splitlines()) <= 6
