"""A data directory that nobody chose and that cannot be used: the gateway serves from memory, and says so."""

from pathlib import Path

import pytest

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.errors import CatalogError, ConfigError
from smart_mcp_proxy.gateway.app import open_gateway_catalog
from smart_mcp_proxy.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")]

TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}}]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which nobody can make a directory, not even root."""
    monkeypatch.setenv("HOME", "/proc")
    return Path("/proc")


async def test_the_default_directory_is_not_needed(home: Path) -> None:
    """A first list is trusted as ever, for as long as the process lives."""
    async with open_gateway_catalog(Settings()) as catalog:
        diff = await catalog.sync("s", TOOLS)
        assert [record.key.tool for record in diff.added] == ["echo"]
        assert not catalog.is_closed
        assert catalog.problem is not None
        assert f"Data directory '{home}/.mcpproxy' cannot be used" in catalog.problem
        assert "kept in memory" in catalog.problem
        assert "MCPPROXY_DATA_DIR" in catalog.problem
        with pytest.raises(CatalogError, match=r"Data directory '.*' cannot be used") as refused:
            await catalog.activity_page(ActivityFilter(), 1)
        assert "MCPPROXY_DATA_DIR" in refused.value.hint


async def test_a_chosen_directory_is_needed(home: Path) -> None:
    """Whoever sets it is there to read the message."""
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        async with open_gateway_catalog(Settings(data_dir=home / "own")):
            pass
    assert "MCPPROXY_DATA_DIR" in caught.value.hint
