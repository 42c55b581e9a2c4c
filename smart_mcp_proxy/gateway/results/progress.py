"""Progress that servers report, in the form that the caller gets."""

from dataclasses import replace

from smart_mcp_proxy.gateway.results.cleaning import clean_message_async, fence_text
from smart_mcp_proxy.models import OnProgress, ProgressReport


async def show_progress(tell: OnProgress, is_cleaned: bool, is_fenced: bool, report: ProgressReport) -> None:
    """Tell of progress without the secrets in use.

    Args:
        tell: Tells the caller.
        is_cleaned: Whether the words are cleaned like a result.
        is_fenced: Whether they are fenced like one.
        report: What the server reports.
    """
    if report.message:
        told = await clean_message_async(report.message, len(report.message), is_cleaned=is_cleaned)
        report = replace(report, message=fence_text(told) if is_fenced else told)
    await tell(report)
