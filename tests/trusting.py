"""A catalog for tests of something else than approvals: it agrees to whatever servers list."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from smart_mcp_proxy.catalog import Catalog, Diff
from smart_mcp_proxy.catalog.tables.tools import KEEP_NONE, Keep
from smart_mcp_proxy.models import Review, Submission

__all__ = ["TrustingCatalog", "anything"]


def anything(submission: Submission) -> bool:
    """Approves."""
    return True


class TrustingCatalog(Catalog):
    """Takes the policy `trusted` for the default."""

    async def sync(
        self,
        server: str,
        definitions: Sequence[Mapping[str, Any]],
        review: Review | None = anything,
        folders: Collection[str] | None = None,
        keep: Keep = KEEP_NONE,
    ) -> Diff:
        return await super().sync(server, definitions, review, folders, keep)
