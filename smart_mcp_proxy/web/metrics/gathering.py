"""Figures of all workers of one port: the one that is asked asks the others."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.observability.metrics import Family, Sample
from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.web.metrics.gauges import gauges

__all__ = ["Gathering", "merged"]

FIGURES: Final = b"m"
"""Kind of the parcels that ask for them."""
ANSWER_S: Final = 2.0
"""How long another worker may take; what it has counted is then missing from this answer."""
log = get_logger("metrics")

_LABEL: Final = "worker"
_decoder = msgspec.json.Decoder(list[Family])


class Gathering:
    """Collects the figures of a gateway, and of the workers beside it.

    Args:
        gateway: Counts.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._worker = gateway.worker
        if not self._worker.is_alone:
            self._worker.listen(FIGURES, self._tell)

    async def families(self) -> list[Family]:
        """All figures; where there are several workers each has its number as a label."""
        own = self._own()
        if self._worker.is_alone:
            return own
        others = [number for number in range(self._worker.count) if number != self._worker.number]
        answers = await asyncio.gather(*(_ask(self._worker, number) for number in others))
        found = {self._worker.number: own} | dict(zip(others, answers, strict=True))
        return merged({number: families for number, families in found.items() if families is not None})

    def _own(self) -> list[Family]:
        metrics = self._gateway.metrics
        return [*(metrics.families() if metrics is not None else ()), *gauges(self._gateway)]

    def _tell(self, _words: bytes, asker: socket.socket) -> None:
        spawn(_send(asker, msgspec.json.encode(self._own())), "figures for another worker")


def merged(found: dict[int, Sequence[Family]]) -> list[Family]:
    """The families of several workers as one each, by the worker's number as a label."""
    families: dict[str, Family] = {}
    for number, ones in sorted(found.items()):
        for one in ones:
            labels = (*one.labels, _LABEL)
            family = families.setdefault(one.name, Family(one.name, one.kind, one.help, labels, []))
            family.samples.extend(
                Sample((*sample.labels, str(number)), sample.value, sample.buckets) for sample in one.samples
            )
    return list(families.values())


async def _ask(worker: Worker, number: int) -> list[Family] | None:
    """The figures of another worker; None where it does not answer."""
    own, theirs = socket.socketpair()
    with own:
        with theirs:
            worker.send(number, FIGURES, b"", theirs.fileno())
        own.setblocking(False)
        try:
            async with asyncio.timeout(ANSWER_S):
                return _decoder.decode(await _read(own))
        except (TimeoutError, OSError, msgspec.MsgspecError) as exc:
            log.warning("worker %d does not say what it has counted: %s", number, exc or "no answer in time")
            return None


async def _read(source: socket.socket) -> bytes:
    loop, parts = asyncio.get_running_loop(), list[bytes]()
    while part := await loop.sock_recv(source, 65_536):
        parts.append(part)
    return b"".join(parts)


async def _send(asker: socket.socket, text: bytes) -> None:
    with asker, suppress(OSError, TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            await asyncio.get_running_loop().sock_sendall(asker, text)
