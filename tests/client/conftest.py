"""Both eras of the protocol for every test that wants them."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def quiet_servers() -> Iterator[None]:
    """FastMCP writes a traceback for each tool that fails, and here tools fail on purpose."""
    logger = logging.getLogger("fastmcp")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
