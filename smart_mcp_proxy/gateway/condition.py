"""Condition of the gateway: the servers' states, and why answers are worse than they could be."""

from collections.abc import Sequence

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.gateway.admin.approvals import Approvals
from smart_mcp_proxy.gateway.calls.admission import AdmissionControl
from smart_mcp_proxy.gateway.indexing.embedding import Embedding
from smart_mcp_proxy.models import ServerStatus
from smart_mcp_proxy.upstream import Fleet

__all__ = ["Condition"]


class Condition:
    """Looks at the parts that may be impaired.

    Args:
        fleet: The servers.
        admission: Their breakers.
        catalog: May have lost its file.
        approvals: May have lost their record.
        embedding: May lack vectors; None where no vectors rank.
        unavailable: What the settings ask for and this installation cannot give.
    """

    def __init__(
        self,
        fleet: Fleet,
        admission: AdmissionControl,
        catalog: Catalog,
        approvals: Approvals,
        embedding: Embedding | None,
        unavailable: Sequence[str],
    ) -> None:
        self._fleet = fleet
        self._admission = admission
        self._catalog = catalog
        self._approvals = approvals
        self._embedding = embedding
        self._unavailable = unavailable

    def statuses(self) -> tuple[ServerStatus, ...]:
        """Every configured server's state, with what its breaker adds to it."""
        return tuple([self._admission.shown(upstream.status) for upstream in self._fleet])

    def degraded(self) -> tuple[str, ...]:
        """Why answers are worse at present than the settings ask for."""
        vectors = self._embedding.degraded if self._embedding is not None else ()
        return (*self._unavailable, *vectors, *filter(None, (self._catalog.problem, self._approvals.problem())))
