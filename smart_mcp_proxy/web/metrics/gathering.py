"""Figures of all workers of one port: the one that is asked asks the others."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.observability.metrics import Family, Sample
from smart_mcp_proxy.web.metrics.gauges import gauges

FIGURES: Final = b"m"
"""Kind of the parcels that ask for them."""
_LABEL: Final = "worker"
_decoder = msgspec.json.Decoder(list[Family])


class Gathering:
    """Collects the figures of a gateway, and of the workers beside it.

    Args:
        gateway: Counts.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._worker = gateway.base.worker
        if not self._worker.is_alone:
            self._worker.answer(FIGURES, lambda _: msgspec.json.encode(self._own()))

    async def families(self) -> list[Family]:
        """All figures; where there are several workers each has its number as a label.

        Those of a worker that does not answer are missing.
        """
        own = self._own()
        if self._worker.is_alone:
            return own
        others = [number for number in range(self._worker.count) if number != self._worker.number]
        answers = await asyncio.gather(*(self._worker.ask(number, FIGURES) for number in others))
        told = {number: _decoder.decode(text) for number, text in zip(others, answers, strict=True) if text is not None}
        return merge_families({self._worker.number: own, **told})

    def _own(self) -> list[Family]:
        metrics = self._gateway.base.metrics
        return [*(metrics.families() if metrics is not None else ()), *gauges(self._gateway)]


def merge_families(found: dict[int, Sequence[Family]]) -> list[Family]:
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
