"""Condition of the gateway: the servers' states, and why answers are worse than they could be."""

from collections.abc import Sequence
from dataclasses import replace

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.conditions import Remark, worst
from smart_mcp_proxy.gateway.admin.approvals import Approvals
from smart_mcp_proxy.gateway.calls.admission import AdmissionControl
from smart_mcp_proxy.gateway.indexing.embedding import Embedding
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.models import ServerState, ServerStatus
from smart_mcp_proxy.upstream import Fleet


class GatewayCondition:
    """Looks at the parts that may be impaired.

    Args:
        fleet: The servers.
        admission: Their breakers.
        catalog: May have lost its file.
        approvals: May have lost their record.
        embedding: May lack vectors; None where no vectors rank.
        lists: Know what is wrong with servers' lists.
        is_fenced: Whether words of servers are fenced where agents read them; here they are then left out.
        unavailable: What the settings ask for and this installation cannot give.
    """

    def __init__(
        self,
        fleet: Fleet,
        admission: AdmissionControl,
        catalog: Catalog,
        approvals: Approvals,
        embedding: Embedding | None,
        lists: ListState,
        unavailable: Sequence[str],
        *,
        is_fenced: bool,
    ) -> None:
        self._fleet = fleet
        self._admission = admission
        self._catalog = catalog
        self._approvals = approvals
        self._embedding = embedding
        self._lists = lists
        self._unavailable = unavailable
        self._is_fenced = is_fenced

    def statuses(self) -> tuple[ServerStatus, ...]:
        """Every configured server's state, with what its breaker and its list add to it."""
        return tuple([self.complete_status(upstream.status) for upstream in self._fleet])

    def complete_status(self, status: ServerStatus) -> ServerStatus:
        """The status with what the server's breaker and its list add to it."""
        status = self._admission.add_breaker_status(status)
        remarks = self._lists.remarks(status.name) if status.state is ServerState.READY else ()
        if not remarks:
            return status
        severity = worst(remarks)
        return replace(
            status,
            state=ServerState.ERROR if severity == "error" else status.state,
            error=_join_sentences(status.error, *(each.message for each in remarks)),
            hint=_join_sentences(status.hint, *(each.hint for each in remarks)),
            severity=severity,
            reason=_join_sentences(*(self._strip_server_words(each) for each in remarks)),
        )

    def _strip_server_words(self, remark: Remark) -> str:
        return remark.reason.removesuffix(remark.said).rstrip() if self._is_fenced else remark.reason

    def list_degradations(self) -> tuple[str, ...]:
        """Why answers are worse at present than the settings ask for."""
        vectors = self._embedding.degradations if self._embedding is not None else ()
        return (*self._unavailable, *vectors, *filter(None, (self._catalog.problem, self._approvals.problem())))


def _join_sentences(*sentences: str) -> str:
    return " ".join(filter(None, sentences))
