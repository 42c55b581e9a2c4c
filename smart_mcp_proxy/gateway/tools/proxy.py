"""`proxy`: everything that the servers offer, through one tool."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs
from pydantic import ConfigDict

from smart_mcp_proxy import policy
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.shared.agent_tools import AgentTool, Arguments, Caller
from smart_mcp_proxy.gateway.tools.reader import ContentReader
from smart_mcp_proxy.gateway.tools.source import CallerSource
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.proxying.operation import DESCRIPTION, PARAMETERS, Batch, Operation, parse_operation
from smart_mcp_proxy.proxying.perform import perform
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import Activity

SUBJECT_CHARS = 200
"""Of a path, no more is written down."""


class ProxyArguments(Arguments):
    """Arguments as given; the rules of the `proxy` tool judge them, the same for every server."""

    model_config = ConfigDict(extra="allow")


class ProxyTool(AgentTool[ProxyArguments]):
    """The `proxy` tool. Its words are shared with those who offer one elsewhere.

    Args:
        name: Under which it is listed.
        visible: The tools that its caller may see.
        calls: The one call path.
        reader: The resources and prompts that it may see.
        recorder: Gets a record of each look at what there is; a call is written down where it is made.
        clock: Monotonic seconds.
    """

    description = DESCRIPTION
    annotations = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True}
    arguments = ProxyArguments

    def __init__(
        self,
        name: str,
        visible: CatalogView,
        calls: Calls,
        reader: ContentReader,
        recorder: Recorder[Activity],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name  # type: ignore[misc]  # the one tool whose name the operator chooses
        self._visible = visible
        self._calls = calls
        self._reader = reader
        self._recorder = recorder
        self._clock = clock

    def definition(self) -> dict[str, Any]:
        """The tool as listed."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": dict(PARAMETERS),
            "annotations": dict(self.annotations),
        }

    def may_need_line(self, arguments: Mapping[str, Any]) -> bool:
        """Whether any server knows each client: what is called is found out later."""
        return bool(self._visible.per_client)

    async def run(self, arguments: ProxyArguments, caller: Caller) -> RawResult:
        """Lists, describes or calls. All but a call is written down here; a call is where it is made.

        Source: docs/design/proxy-extension.md#access
        """
        request = parse_operation(arguments.model_extra or {})
        # What comes back is rewritten, and may be one of many: there is no place in it for a server's question.
        caller = structs.replace(caller, input=None)
        source = CallerSource(self._visible, self._calls, self._reader, caller, frozenset({self.name}))
        started, outcome = self._clock(), "internal"
        try:
            answer = await perform(request, source, caller.era)
            outcome = "ok"
        except ProxyError as error:
            outcome = error.error_code
            raise
        finally:
            if isinstance(request, Batch) or request.action != "call":
                self._note(request, caller, outcome, self._clock() - started)
        return RawResult(answer)

    def _note(self, request: Operation | Batch, caller: Caller, outcome: str, seconds: float) -> None:
        self._recorder.record(
            Activity(
                kind="search",
                principal=caller.principal,
                subject=policy.mask_text("" if isinstance(request, Batch) else request.path, SUBJECT_CHARS),
                outcome=outcome,
                duration_ms=seconds * 1000,
                at_s=time.time(),
                detail={"tool": self.name, **_detail(request)},
                session=policy.short_digest(caller.session) if caller.session else "",
            )
        )


def _detail(request: Operation | Batch) -> Mapping[str, Any]:
    if isinstance(request, Batch):
        return {"action": "batch", "operations": len(request.operations)}
    return {"action": request.action, "type": request.type}
