"""`code_execution` as an agent calls it: rights of its calls, its limits, its answer, and what is written down."""

import asyncio
import json
from collections.abc import AsyncIterator
from threading import get_ident
from typing import Any

import pytest
from gateway_fakes import FakeFleet, FakeUpstream, Parts, definition

from smart_mcp_proxy.errors import MissingExtraError, ProxyError
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.calls.gates import CallLimits
from smart_mcp_proxy.gateway.calls.request_path import RequestPath
from smart_mcp_proxy.gateway.engines import available
from smart_mcp_proxy.gateway.results.outputs import META_KEY, Outputs
from smart_mcp_proxy.gateway.sandbox import Sandbox, runnable
from smart_mcp_proxy.gateway.tools import Caller
from smart_mcp_proxy.gateway.tools.code_execution import CodeExecution
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.io.watchdog import Watchdog
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

CALLER = Caller("ann", {"example.org/trace": 7}, None, session="s1")


class CodeSetup:
    """The tool over the fake servers alpha and beta."""

    def __init__(self, parts: Parts, sandbox: Sandbox, **settings: Any) -> None:
        self.alpha, self.beta = FakeUpstream("alpha"), FakeUpstream("beta")
        fleet: Any = FakeFleet(self.alpha, self.beta)
        notebook: Any = parts.notebook
        self._parts, self._sandbox = parts, sandbox
        self.settings = Settings(**({"code": "both"} | settings))
        limits = CallLimits(output_limit_chars=self.settings.truncate_output_len or 0)
        self._calls = Calls(RequestPath(fleet, notebook, limits, parts.clock), parts.visible, parts.outputs)

    def tool(self, visible: CatalogView | None = None) -> CodeExecution:
        """As one part of the catalog offers it."""
        parts, notebook = self._parts, self._parts.notebook
        shown = visible or parts.visible
        recorder: Any = notebook
        return CodeExecution(self._sandbox, self._calls, shown, parts.outputs, recorder, self.settings, parts.clock)

    async def run(self, code: str, **arguments: Any) -> dict[str, Any]:
        """The whole result."""
        result: dict[str, Any] = json.loads((await self.tool().call({"code": code, **arguments}, CALLER)).text)
        return result

    async def failure(self, code: str, **arguments: Any) -> ProxyError:
        """The error that a call ends with."""
        with pytest.raises(ProxyError) as caught:
            await self.run(code, **arguments)
        return caught.value


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Watchdog() as watchdog, Sandbox(4, watchdog) as opened:
        yield opened


@pytest.fixture
async def setup(parts: Parts, sandbox: Sandbox) -> CodeSetup:
    """Tools with every hint: look reads, save says nothing, drop destroys; beta has a look as well."""
    look = definition("look", hints={"readOnlyHint": True})
    await parts.sync("alpha", [look, definition("save"), definition("drop", hints={"destructiveHint": True})])
    await parts.sync("beta", [look])
    return CodeSetup(parts, sandbox)


async def test_a_script_calls_every_tool_as_that_tool_asks_to_be_called(setup: CodeSetup, parts: Parts) -> None:
    """Whoever approved the script approved what it says; listed names work too."""
    result = await setup.run("[call_tool(n) for n in ('alpha:look', 'alpha__save', 'alpha:drop')]\nlen('abc')")
    answer = result["structuredContent"]
    assert answer["result"] == 3
    assert [call["outcome"] for call in answer["calls"]] == ["ok"] * 3
    assert json.loads(result["content"][0]["text"]) == answer
    assert [params["name"] for _, params in setup.alpha.sent] == ["look", "save", "drop"]
    assert all(params["_meta"] == {"example.org/trace": 7} for _, params in setup.alpha.sent)
    variants = [line.detail.get("variant") for line in parts.notebook.lines]
    assert variants == ["read", "write", "destructive", None]


async def test_a_read_only_script_is_refused_everything_else(setup: CodeSetup) -> None:
    """Before it is sent."""
    code = "[r['ok'] for r in call_tools([{'name': 'alpha:' + n} for n in ('look', 'save', 'drop')])]"
    answer = (await setup.run(code, read_only=True))["structuredContent"]
    assert answer["result"] == [True, False, False]
    assert [call["outcome"] for call in answer["calls"]] == ["ok", "intent_mismatch", "intent_mismatch"]
    assert [params["name"] for _, params in setup.alpha.sent] == ["look"]


async def test_a_script_is_kept_to_its_servers(setup: CodeSetup) -> None:
    """By whichever name it asks."""
    code = "[r.get('error', {}).get('code') for r in call_tools([{'name': n} for n in input['names']])]"
    names = ["alpha:look", "beta:look", "beta__look"]
    answer = (await setup.run(code, servers=["alpha"], input={"names": names}))["structuredContent"]
    assert answer["result"] == [None, "server_not_allowed", "server_not_allowed"]
    assert setup.beta.sent == []


async def test_a_script_sees_no_more_than_its_caller(setup: CodeSetup, parts: Parts) -> None:
    """In a part of the catalog the rest does not exist, and the gateway's own tools cannot be called at all."""
    part = CatalogView(parts.catalog, {"beta": parts.visible.servers["beta"]}, parts.index.nearest_names)
    code = "[r['ok'] for r in call_tools([{'name': n} for n in ('beta:look', 'alpha:look', 'code_execution')])]"
    result = json.loads((await setup.tool(part).call({"code": code}, CALLER)).text)["structuredContent"]
    assert result["result"] == [True, False, False]
    assert setup.alpha.sent == []


@pytest.mark.long  # a third of a second of processor time
async def test_a_script_and_its_calls_are_written_down_together(setup: CodeSetup, parts: Parts) -> None:
    """Each call names the script's record as its parent; all are the caller's."""
    await setup.run("call_tool('alpha:look')\ncall_tool('beta:look')")
    await setup.failure("call_tool('alpha:save')\n1 / 0")
    *calls, last = parts.notebook.lines[3:]
    first = parts.notebook.lines[2]
    assert (first.subject, first.outcome, first.detail) == ("code_execution", "ok", {"language": "python", "calls": 2})
    assert [line.parent for line in parts.notebook.lines[:2]] == [first.id] * 2
    assert [line.parent for line in calls] == [last.id]
    assert (last.outcome, last.delivery) == ("code_error", "executed")
    assert {line.principal for line in parts.notebook.lines} == {"ann"}
    assert "1 / 0" not in repr(parts.notebook.lines)


async def test_calls_come_whole_and_the_answer_is_cut(parts: Parts, sandbox: Sandbox, setup: CodeSetup) -> None:
    """A script must not compute with half a result; a model must not be flooded by a whole one."""
    cutting = CodeSetup(parts, sandbox, truncate_output_len=400)
    text = "line\n" * 400
    cutting.alpha.answer = json.dumps({"content": [{"type": "text", "text": text}]}).encode()
    result = await cutting.run("[len(call_tool('alpha:look')), call_tool('alpha:look')]")
    assert len(result["content"][0]["text"]) <= 400
    page = await parts.outputs.page(result["_meta"][META_KEY]["key"], "ann", 0, 5000)
    assert json.loads(str(page.items))["result"] == [2000, text]


async def test_a_long_answer_is_cut_and_fenced_off_the_loop(
    parts: Parts, sandbox: Sandbox, setup: CodeSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else waits for it."""
    threads: list[int] = []

    def clock() -> float:
        threads.append(get_ident())
        return 0.0

    monkeypatch.setattr(parts, "outputs", Outputs(clock))
    cutting = CodeSetup(parts, sandbox, truncate_output_len=400, fence_results=True)
    result = await cutting.run("'x' * 100_000")
    assert META_KEY in result["_meta"]
    assert threads
    assert get_ident() not in threads


@pytest.mark.parametrize(("error", "outcome"), [(asyncio.CancelledError, "cancelled"), (ValueError, "internal")])
async def test_a_failure_of_ours_is_not_written_down_as_a_cancellation(
    setup: CodeSetup, parts: Parts, error: type[BaseException], outcome: str
) -> None:
    """Whoever reads the log looks for the one where it is, and does not for the other."""

    class Broken:
        async def run(self, *args: object) -> Any:
            raise error

    broken: Any = Broken()
    with pytest.raises(error):
        await CodeSetup(parts, broken).run("1")
    (line,) = parts.notebook.lines
    assert (line.outcome, line.delivery) == (outcome, "unknown")


async def test_the_answer_is_fenced_as_a_whole_where_the_settings_ask_for_it(
    parts: Parts, sandbox: Sandbox, setup: CodeSetup
) -> None:
    """What a script returns is made of what servers said."""
    result = await CodeSetup(parts, sandbox, fence_results=True).run("'from elsewhere'")
    assert "structuredContent" not in result
    assert result["content"][0]["text"].splitlines()[0].startswith("<")
    assert "from elsewhere" in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"timeout_ms": 30_001}, "timeout_ms is 30001"),
        ({"timeout_ms": 0}, "timeout_ms is 0"),
        ({"max_calls": 101}, "max_calls is 101"),
        ({"language": "perl"}, "language is 'perl'"),
        ({"code": "x" * 300_000}, "code has 300000 characters"),
        ({"input": [1]}, "input is [1]"),
        ({"file": "x"}, "file is not a parameter"),
    ],
)
async def test_what_a_call_may_not_ask_for_is_an_error(setup: CodeSetup, arguments: dict[str, Any], says: str) -> None:
    """Never a clamp; nothing is run."""
    with pytest.raises(ProxyError) as caught:
        await setup.tool().call({"code": "1"} | arguments, CALLER)
    assert (caught.value.error_code, caught.value.delivery) == ("invalid_arguments", "not_sent")
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("const a = 1; a", "The script returned nothing: end it with return VALUE."),
        (
            "call_tool('alpha:look')",
            "end it with return VALUE. A call is a promise: write await call_tool(name, args).",
        ),
        ("call_tool('alpha', 'look', {})", "A call is a promise: write await call_tool(name, args)."),
        ("await call_tool('alpha:look')", "The script returned nothing: end it with return VALUE."),
        ("const found = call_tool('alpha:look'); return {found}", "A call is a promise"),
    ],
)
async def test_a_script_that_gave_nothing_is_told_what_it_may_have_meant(
    setup: CodeSetup, code: str, hint: str
) -> None:
    """Null alone says nothing to who wrote it."""
    answer = (await setup.run(code, language="javascript"))["structuredContent"]
    assert answer["result"] in (None, {"found": {}})
    assert hint in answer["hint"]


@pytest.mark.parametrize(
    "code", ["return null", "return await call_tool('alpha:look')", "return call_tool('alpha:look')", "return 1"]
)
async def test_a_script_that_gave_what_it_says_gets_no_hint(setup: CodeSetup, code: str) -> None:
    """Nor does one in Python, whose last expression is the result."""
    for language, text in (("javascript", code), ("python", "call_tool('alpha:look')\nNone")):
        answer = (await setup.run(text, language=language))["structuredContent"]
        assert set(answer) == {"result", "output", "calls"}


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize(
    ("language", "code", "other"),
    [
        ("python", "const a = await call_tool('alpha:look');\nreturn a;", "javascript"),
        ("python", "console.log(1)", "javascript"),
        ("python", "// look\ncall_tool('alpha:look', {})", "javascript"),
        ("javascript", "for name in ['a']:\n    print(name)", "python"),
        ("javascript", "x = None\nx", "python"),
    ],
)
async def test_a_script_in_the_other_language_is_told_so(
    parts: Parts, sandbox: Sandbox, setup: CodeSetup, language: str, code: str, other: str
) -> None:
    """With the argument that runs it, where it is run at all."""
    error = await setup.failure(code, language=language)
    assert error.error_code == "code_error"
    assert error.hint.startswith("This looks like ") and f": pass language={other}." in error.hint
    assert "data.calls" in error.hint
    alone = await CodeSetup(parts, sandbox, code=language).failure(code, language=language)
    assert "pass language" not in alone.hint and "is run here" in alone.hint


@pytest.mark.parametrize(("language", "code"), [("python", "1 / 0"), ("javascript", "const a = 1; a.b.c")])
async def test_a_script_that_fails_in_its_own_language_is_not_doubted(
    setup: CodeSetup, language: str, code: str
) -> None:
    """Its error is its own."""
    assert (await setup.failure(code, language=language)).hint.startswith("Correct the script")


@pytest.mark.long  # a third of a second of processor time
async def test_a_call_may_lower_its_limits(setup: CodeSetup) -> None:
    """Time and calls."""
    error = await setup.failure("call_tool('alpha:look')\ncall_tool('alpha:look')", max_calls=1)
    assert (error.error_code, error.delivery) == ("code_too_many_calls", "executed")
    error = await setup.failure("while True: pass", timeout_ms=700)
    assert error.message == "The script did not end within 0.7 s."


@pytest.mark.parametrize(("code", "languages"), [("python", ["python"]), ("javascript", ["javascript"])])
async def test_a_language_that_is_not_served_is_neither_listed_nor_run(
    parts: Parts, sandbox: Sandbox, code: str, languages: list[str]
) -> None:
    """The one that is served is the default."""
    setup = CodeSetup(parts, sandbox, code=code)
    shown = setup.tool().definition()
    assert shown["inputSchema"]["properties"]["language"] | {"description": ""} == {
        "type": "string",
        "description": "",
        "enum": languages,
        "default": languages[0],
    }
    assert (await setup.run("1" if code == "python" else "return 1"))["structuredContent"]["result"] == 1
    other = "javascript" if code == "python" else "python"
    assert other not in shown["description"].lower()
    assert (await setup.failure("1", language=other)).error_code == "invalid_arguments"


async def test_clients_can_ask_their_user_before_a_script_runs(setup: CodeSetup) -> None:
    """A script can do whatever the tools can do, and says so; its definition is short."""
    shown = setup.tool().definition()
    assert shown["annotations"] == {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True}
    assert len(shown["description"].splitlines()) <= 6
    assert len(json.dumps(shown, separators=(",", ":")).encode()) / 4 <= 400


@pytest.mark.parametrize(
    ("setting", "installed", "left", "missing"),
    [
        ("off", [], "off", []),
        ("both", ["pydantic_monty", "deno"], "both", []),
        ("both", ["pydantic_monty"], "python", ["deno"]),
        ("both", ["deno"], "javascript", ["pydantic-monty"]),
        ("javascript", ["pydantic_monty"], "off", ["deno"]),
        ("python", [], "off", ["pydantic-monty"]),
    ],
)
def test_a_language_whose_package_is_missing_is_left_out(
    setting: Any, installed: list[str], left: str, missing: list[str]
) -> None:
    """With the command that installs it."""
    found, errors = runnable(setting, is_installed=installed.__contains__)
    assert found == left
    assert [error.hint for error in errors] == [f"Install it: pip install {name}" for name in missing]


def test_a_missing_package_is_told_or_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """By `MCPPROXY_STRICT`, as for every other optional package."""
    monkeypatch.setattr(
        "smart_mcp_proxy.gateway.engines.runnable", lambda _: runnable("both", lambda name: name == "deno")
    )
    settings, reasons = available(Settings(code="both"), {})
    assert settings.code == "javascript"
    assert reasons == ("MCPPROXY_CODE=both needs pydantic-monty for python; until then agents cannot use it",)
    with pytest.raises(MissingExtraError):
        available(Settings(code="both", strict=True), {})
