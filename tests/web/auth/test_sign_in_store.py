"""What is kept of sign-ins goes when its time is over, without anybody asking for it again."""

from pathlib import Path

import anyio
import pytest

from smart_mcp_proxy.web.auth.sign_in_store import SWEEP_EVERY_S, SweptFiles

pytestmark = pytest.mark.anyio


class Counted(SweptFiles):
    """Files that count their sweeps, under a clock turned by hand."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, clock=lambda: self.now_s)
        self.now_s = 1000.0
        self.sweeps = 0

    async def cull(self) -> None:
        await super().cull()
        self.sweeps += 1

    async def swept(self, times: int) -> None:
        """Waits until it has been swept so often."""
        with anyio.fail_after(20):
            while self.sweeps < times:
                await anyio.lowlevel.checkpoint()


async def test_what_is_over_leaves_the_disk_with_something_that_is_written_later(tmp_path: Path) -> None:
    """What is still good, or is kept for good, stays."""
    store = Counted(tmp_path)
    await store.put("first", {"a": 1}, collection="c")
    await store.swept(1)
    await store.put("over", {"a": 1}, collection="c", ttl=1e-6)
    await store.put("good", {"a": 1}, collection="c", ttl=900)
    assert len(list(tmp_path.rglob("over*.json"))) == 1
    store.now_s += SWEEP_EVERY_S
    await store.put("last", {"a": 1}, collection="c")
    await store.swept(2)
    assert {path.stem for path in (tmp_path / "c").iterdir()} == {"first", "good", "last"}


@pytest.mark.long  # a third of a second of processor time
async def test_a_sweep_comes_once_in_a_while_and_never_beside_another(tmp_path: Path) -> None:
    """Each reads every file."""
    store = Counted(tmp_path)
    for number in range(5):
        await store.put(f"{number}", {"a": 1})
    await store.swept(1)
    await store.put("more", {"a": 1})
    store.now_s += SWEEP_EVERY_S - 1
    await store.put("more", {"a": 1})
    assert store.sweeps == 1
    store.now_s += 1
    await store.put("more", {"a": 1})
    await store.swept(2)
