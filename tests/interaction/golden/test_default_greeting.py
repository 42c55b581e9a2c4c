"""The first answers that come with the program are what the SDK says, and depend on nothing else than is looked at."""

from pathlib import Path

import pytest
from listing import default_greeting_file, rendered_default_greeting

from smart_mcp_proxy.cli.support.opening import _SAYS_NOTHING
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.gateway.rehearsal import Rehearsal
from smart_mcp_proxy.greeting.record import default_answers
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

OTHERS = {
    "activity_args": "full",
    "activity_days": 3,
    "activity_rows": 500,
    "broker_requests": 7,
    "calls_burst": 9,
    "calls_per_s": 5,
    "clean_results": False,
    "fence_results": True,
    "host": "::1",
    "in_flight": 3,
    "isolation": "none",
    "learn": True,
    "log_format": "json",
    "log_level": "DEBUG",
    "openai_model": "x",
    "person_in_flight": 2,
    "person_quota": "50/day",
    "port": 1,
    "start_parallel": 1,
    "transport": "streamable-http",
    "trust": "trusted",
}


async def test_the_default_greeting_is_what_the_sdk_says() -> None:
    """Every version, with and without servers. After a change: python scripts/regenerate_golden.py."""
    assert default_greeting_file().read_text("utf-8") == await rendered_default_greeting()


@pytest.mark.parametrize("config", ["{}", '{"mcpServers": {"b": {"command": "x"}, "a b": {"url": "https://x"}}}'])
async def test_settings_that_say_nothing_change_no_answer(tmp_path: Path, config: str) -> None:
    """Each of those that may differ from its default at the first start ever does."""
    assert OTHERS.keys() <= _SAYS_NOTHING
    settings = Settings.model_validate(OTHERS | {"data_dir": tmp_path})
    file = load_servers(config)
    async with open_gateway(settings, file.servers, environ={}) as gateway:
        answers = await Rehearsal(gateway).answers()
    assert answers == default_answers(list(file.servers))[0]


@pytest.mark.parametrize("setting", ["DYNAMIC", "AUTO"])
async def test_a_list_that_grows_is_known_at_the_first_start(tmp_path: Path, setting: str) -> None:
    """As nothing is found yet; the greeting says that the list may change."""
    settings = Settings.model_validate({"routing_type": setting, "data_dir": tmp_path})
    async with open_gateway(settings, {}, environ={}) as gateway:
        answers = await Rehearsal(gateway).answers()
        assert not gateway.agent.sessions
    assert '"listChanged":true' in answers["initialize"]["2025-11-25"]
    assert answers == default_answers(is_growing=True)[0]
