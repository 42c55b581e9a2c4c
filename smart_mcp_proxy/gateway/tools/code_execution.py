"""`code_execution`: one script that makes many calls, run in a sandbox."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from smart_mcp_proxy import policy
from smart_mcp_proxy.desktop.present import name_present_client
from smart_mcp_proxy.errors import ProxyError, RefusedError, RequestError
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.results.cleaning import clean, clean_error_async, fence
from smart_mcp_proxy.gateway.results.outputs import Outputs
from smart_mcp_proxy.gateway.results.results import build_structured_result, may_need_cleaning, rewrite_result
from smart_mcp_proxy.gateway.sandbox import Finished, Language, Ledger, Sandbox, Script, list_languages
from smart_mcp_proxy.gateway.sandbox.advice import advice_on_failure, advice_on_result
from smart_mcp_proxy.gateway.shared.agent_tools import AgentTool, Arguments, Caller
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import CallRequest
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity, new_activity_id

CODE_CHARS = 256 * 1024
"""No agent writes a longer script."""
_MIB = 1 << 20

_WAYS: Mapping[Language, str] = {
    "python": "Python (no imports but the core library): call_tool(name, args); the last expression is the result.",
    "javascript": "JavaScript: await call_tool(name, args); return the result.",
}


class CodeArguments(Arguments):
    """Arguments of `code_execution`."""

    code: Annotated[str, Field(description="The script")]
    language: Annotated[Language, Field(description="What it is written in")] = "python"
    input: Annotated[dict[str, Any], Field(description="The script's variable input")] = {}
    timeout_ms: Annotated[int, Field(ge=1, description="End it after this long")] = 0
    max_calls: Annotated[int, Field(ge=1, description="End it at one call more")] = 0
    servers: Annotated[list[str], Field(description="Call these servers only")] = []
    read_only: Annotated[bool, Field(description="Call tools marked read-only only")] = False


@dataclass(eq=False, repr=False)
class CodeExecution(AgentTool[CodeArguments]):
    """The `code_execution` tool: a script of the agent calls many tools."""

    name = "code_execution"
    description = """\
    Run a script that calls many tools (find them with retrieve_tools) and returns only what you need of it.
    {ways}
    call_tool gives the tool's structured content, else its JSON or text, and raises if the call fails.
    call_tools([{{"name", "args"}}]) runs calls together and gives {{"ok", "result" | "error"}} for each.
    Printed text is returned too. No files, network or environment; calls already made stay made.
    """
    annotations = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True}
    arguments = CodeArguments

    sandbox: Sandbox
    calls: Calls
    visible: CatalogView
    outputs: Outputs
    recorder: Recorder[Activity]
    settings: Settings
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._languages = list_languages(self.settings.code)

    def definition(self) -> dict[str, Any]:
        """The tool as listed, with the configured languages and limits."""
        definition = super().definition()
        ways = "\n".join(_WAYS[language] for language in self._languages)
        definition["description"] = definition["description"].format(ways=ways)
        properties = definition["inputSchema"]["properties"]
        properties["language"] |= {"enum": list(self._languages), "default": self._languages[0]}
        for name, most in self._most().items():
            properties[name] |= {"maximum": most, "default": most}
        return definition

    async def run(self, arguments: CodeArguments, caller: Caller) -> RawResult:
        """Runs the script and writes down that it ran; each of its calls is written down by itself."""
        started, id = self.clock(), new_activity_id()
        ledger = Ledger()
        outcome, delivery = "internal", "unknown"
        try:
            finished, hint = await self._finish(arguments, caller, ledger, id)
            outcome, delivery = "ok", ""
        except ProxyError as error:
            outcome, delivery = error.error_code, error.delivery
            settings = self.settings
            raise await clean_error_async(
                error, is_cleaned=settings.clean_results, is_fenced=settings.fence_results
            ) from error
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self.recorder.record(
                Activity(
                    kind="call",
                    principal=caller.principal,
                    subject=self.name,
                    outcome=outcome,
                    duration_ms=(self.clock() - started) * 1000,
                    at_s=time.time(),
                    detail={"language": arguments.language, "calls": len(ledger), **name_present_client()},
                    id=id,
                    session=policy.short_digest(caller.session) if caller.session else "",
                    delivery=delivery,
                )
            )
        answer = {"result": finished.result, "output": finished.output, "calls": ledger.groups()}
        if hint:
            answer["hint"] = hint
        raw = build_structured_result(answer)
        if self.settings.clean_results and may_need_cleaning(raw):
            raw = await rewrite_result(raw, clean)
        if limit := self.settings.truncate_output_len:
            raw = await self.outputs.cut(raw, limit, caller.principal)
        return await rewrite_result(raw, fence) if self.settings.fence_results else raw

    async def _finish(self, arguments: CodeArguments, caller: Caller, ledger: Ledger, id: str) -> tuple[Finished, str]:
        """Return the script's result, and advice on what its author may have meant otherwise."""
        script = self._script(arguments)

        async def make_call(name: str, args: Mapping[str, Any]) -> bytes:
            call = self._request(name, args, arguments, caller, id)
            return (await self.calls.call(call, within=self.visible)).text

        try:
            finished = await self.sandbox.run(script, make_call, ledger)
        except ProxyError as error:
            if error.error_code == "code_error":
                advice = advice_on_failure(script.language, script.code, self._languages)
                error.hint = f"{advice} {error.hint}".strip()
            raise
        return finished, advice_on_result(script.language, script.code, is_null=bytes(finished.result) == b"null")

    def _script(self, arguments: CodeArguments) -> Script:
        """The script with its limits.

        Raises:
            RequestError: It is too long, asks for more than it may have, or is in a language that is not served.
        """
        given, most = arguments.model_fields_set, self._most()
        asked = {name: getattr(arguments, name) if name in given else most[name] for name in most}
        language = arguments.language if "language" in given else self._languages[0]
        if language not in self._languages:
            raise _invalid(f"language is '{language}'", f"Use {self._languages[0]}.")
        if len(arguments.code) > CODE_CHARS:
            raise _invalid(f"code has {len(arguments.code)} characters", f"At most {CODE_CHARS} are run.")
        for name, value in asked.items():
            if value > most[name]:
                raise _invalid(f"{name} is {value}", f"The operator allows at most {most[name]}.")
        return Script(
            code=arguments.code,
            language=language,
            input=arguments.input,
            timeout_s=asked["timeout_ms"] / 1000,
            memory_bytes=self.settings.code_memory_mb * _MIB,
            max_calls=asked["max_calls"],
        )

    def may_need_line(self, arguments: Mapping[str, Any]) -> bool:
        """Whether any server knows each client: a script may call all."""
        return bool(self.visible.per_client)

    def _most(self) -> dict[str, int]:
        """The limits that a call may lower, and how high they are."""
        return {"timeout_ms": self.settings.code_timeout_s * 1000, "max_calls": self.settings.code_max_calls}

    def _request(
        self, name: str, args: Mapping[str, Any], arguments: CodeArguments, caller: Caller, id: str
    ) -> CallRequest:
        """Build the request of one call that a script makes.

        The mode is the one that the tool asks for; with `read_only` it is that of call_tool_read.
        Who approved the script approved its calls.

        Raises:
            RefusedError: The tool is on a server that the script is kept from.
        """
        record = self.visible.find(name)
        if record is not None and arguments.servers and record.key.server not in arguments.servers:
            raise RefusedError(
                f"Tool '{record.key}' is not on one of the servers that this script may call.",
                hint=f"It was run with servers: {', '.join(arguments.servers)}. Run it again with that one among them.",
                code="server_not_allowed",
            )
        if record is not None and caller.tool_list is not None:
            caller.tool_list.note_called(record)
        return CallRequest(
            name=name if record is None else str(record.key),
            arguments=args,
            variant="read" if arguments.read_only or record is None else policy.call_with(record.annotations),
            principal=caller.principal,
            session=caller.session,
            meta=caller.meta,
            parent=id,
            line=caller.line,
        )


def _invalid(what: str, hint: str) -> RequestError:
    return RequestError(f"code_execution: {what}.", hint=hint, code="invalid_arguments")
