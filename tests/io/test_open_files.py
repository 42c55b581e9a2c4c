"""Limits on open files: raised as far as the system allows, kept for servers, named when they are reached."""

import errno
import os
import resource
from collections.abc import Iterator

import pytest

from smart_mcp_proxy.io.open_files import is_scarce, most_open_files, raise_limit, why_none_left


@pytest.fixture
def hard() -> Iterator[int]:
    """What the system allows; the limit of this process is put back."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_low_limit_is_raised_and_a_high_one_kept(hard: int) -> None:
    enough = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    raise_limit()
    assert most_open_files() == enough
    raise_limit()
    assert most_open_files() == enough


@pytest.mark.parametrize(("most", "first_scarce"), [(100, 75), (256, 192), (512, 448)])
def test_the_last_descriptors_are_kept(hard: int, most: int, first_scarce: int) -> None:
    """Sixty-four of them, or a quarter where there are few."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    assert [is_scarce(descriptor) for descriptor in (first_scarce - 1, first_scarce)] == [False, True]


def test_only_a_want_of_descriptors_is_called_one(hard: int) -> None:
    """Also where uvloop has no name for it."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    for number in (errno.EMFILE, -1):
        assert (why_none_left(OSError(number, "?")) or "").endswith("open as it may, 300")
    assert "the system" in (why_none_left(OSError(errno.ENFILE, os.strerror(errno.ENFILE))) or "")
    assert why_none_left(OSError(errno.ENOENT, "?")) is None
