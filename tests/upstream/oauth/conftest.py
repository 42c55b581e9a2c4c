"""A server behind a sign-in, and the sign-ins that it is used with."""

from collections.abc import AsyncIterator
from pathlib import Path

import keyring
import pytest
from keyring.backends.fail import Keyring as NoKeyring
from sign_in_fakes import Guarded, WallClock, guarded

from smart_mcp_proxy.upstream import SignIns


@pytest.fixture(autouse=True)
def no_keyring() -> None:
    """The desktop's keyring is none of the tests' business."""
    keyring.set_keyring(NoKeyring())


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    async with guarded() as made:
        yield made


@pytest.fixture
def clock() -> WallClock:
    return WallClock()


@pytest.fixture
def sign_ins(tmp_path: Path, clock: WallClock) -> SignIns:
    return SignIns(tmp_path, now=clock)
