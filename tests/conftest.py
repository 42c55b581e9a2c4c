"""Fixtures that every test may use."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The one event loop the gateway runs on."""
    return "asyncio"
