"""Progress that servers report, in the form that the caller gets."""

from dataclasses import replace
from functools import partial

from smart_mcp_proxy.gateway.results.cleaning import fenced, told_beside
from smart_mcp_proxy.models import OnProgress, Progress

__all__ = ["shown_progress"]


def shown_progress(tell: OnProgress | None, *, is_cleaned: bool, is_fenced: bool) -> OnProgress | None:
    """Tells of progress without the secrets in use; None where nobody asked for it.

    Args:
        tell: Tells the caller.
        is_cleaned: Whether the words are cleaned like a result.
        is_fenced: Whether they are fenced like one.
    """
    return None if tell is None else partial(_show, tell, is_cleaned, is_fenced)


async def _show(tell: OnProgress, is_cleaned: bool, is_fenced: bool, report: Progress) -> None:
    if report.message:
        told = await told_beside(report.message, len(report.message), is_cleaned=is_cleaned)
        report = replace(report, message=fenced(told) if is_fenced else told)
    await tell(report)
