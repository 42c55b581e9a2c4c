"""What is too large to be taken is not kept either: memory stays within a few times the limit, and comes back."""

import gc
import tracemalloc
from pathlib import Path

import pytest
from modes import MODES, Place
from rig import opened_rig

from smart_mcp_proxy.upstream.opening import MAX_MESSAGE_BYTES

pytestmark = [pytest.mark.anyio, pytest.mark.long]

ROUNDS = 3
PEAK_BYTES = 3 * MAX_MESSAGE_BYTES
"""A message that is being read, a copy on its way to somewhere, and everything else."""
KEPT_BYTES = 2 << 20
LARGE = ("32-mib", "32-mib-id-last", "gzip-bomb", "endless-body", "sse-endless-event", "headers-10000", "noise-storm")
SAMPLE = {("call 32-mib", "stdio-handshake"), ("call gzip-bomb", "http-modern"), ("call endless-body", "http-modern")}


def large() -> list[object]:
    """Each large answer in each of its places; a sample runs always."""
    return [
        pytest.param(
            mode.fault,
            place,
            id=f"{mode}-{place}".replace(" ", "-"),
            marks=() if (mode.fault, str(place)) in SAMPLE else pytest.mark.soak,
        )
        for mode in MODES
        for place in mode.places()
        if mode.stage == "call" and mode.fault.split()[1] in LARGE and place.transport != "sse"
    ]


@pytest.mark.parametrize(("fault", "place"), large())
async def test_a_large_answer_leaves_no_memory_behind(tmp_path: Path, fault: str, place: Place) -> None:
    """F30, F31: of 32 MiB, of 200 MiB unpacked, of bytes without end."""
    async with opened_rig(tmp_path, place) as rig:
        assert (await rig.call(rig.nonce())).outcome == "ok"
        tracemalloc.start()
        try:
            for number in range(1 + ROUNDS):
                if number == 1:  # what is made once, at the first time, is there
                    gc.collect()
                    before_bytes, _ = tracemalloc.get_traced_memory()
                    tracemalloc.reset_peak()
                rig.faulty.switch(fault)
                await rig.call(rig.nonce())
                await rig.faulty.lift()
                await rig.reconnect()
                await rig.settle()
                assert (await rig.call(rig.nonce())).outcome == "ok"
            gc.collect()
            after_bytes, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak_bytes - before_bytes < PEAK_BYTES
    assert after_bytes - before_bytes < KEPT_BYTES
