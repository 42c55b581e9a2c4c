"""What a script can do: call tools one by one and together, read what they answer, print, return, fail."""

from typing import Any

import pytest
from sandbox_fakes import Bench

from smart_mcp_proxy.gateway.sandbox import Language

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("language", ["python", "javascript"])
Code = dict[Language, str]


@BOTH
async def test_a_script_returns_what_it_makes_of_its_input(bench: Bench, language: Language) -> None:
    """Any JSON goes in and comes out."""
    given = {"a": [1, 2.5, None, True, "é\u2028\n", {"b": {}}]}
    code: Code = {"python": "[input['a'], len(input['a'])]", "javascript": "return [input.a, input.a.length]"}
    assert await bench.run(language, code[language], input=given) == [given["a"], 6]


@BOTH
async def test_a_script_that_returns_nothing_returns_null(bench: Bench, language: Language) -> None:
    """It may have been run for its calls alone."""
    code: Code = {"python": "x = 1", "javascript": "const x = 1"}
    assert await bench.run(language, code[language]) is None


@BOTH
@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("echo", {"n": 1, "deep": {"l": [None]}}, {"n": 1, "deep": {"l": [None]}}),
        ("shape", {}, {"round": [1, None, "é"]}),
        ("say", {"text": "plain é"}, "plain é"),
        ("say", {"text": "{not json"}, "{not json"),
        ("say", {"text": "42"}, "42"),
        ("picture", {}, [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]),
    ],
)
async def test_a_call_gives_the_value_that_the_tool_means(
    bench: Bench, language: Language, name: str, args: dict[str, Any], expected: Any
) -> None:
    """Structured content first, then text, read where it is an object or an array, else the content as it came."""
    code: Code = {
        "python": "call_tool(input['name'], input['args'])",
        "javascript": "return await call_tool(input.name, input.args)",
    }
    assert await bench.run(language, code[language], input={"name": name, "args": args}) == expected
    assert bench.tools.asked == [(name, args)]
    assert bench.ledger.groups() == [{"name": name, "outcome": "ok", "count": 1}]


@BOTH
async def test_server_and_tool_may_be_two_arguments(bench: Bench, language: Language) -> None:
    """The form of the field's other implementation: its scripts run here."""
    code: Code = {
        "python": "[call_tool('a', 'echo', {'n': 1}), call_tool('a', 'echo')]",
        "javascript": "return [await call_tool('a', 'echo', {n: 1}), await call_tool('a', 'echo')]",
    }
    error = await bench.failure(language, code[language])
    assert "No tool is named 'a:echo'." in str(error)
    assert bench.tools.asked == [("a:echo", {"n": 1})]
    text: Code = {"python": "call_tool('echo', '{}')", "javascript": "await call_tool('echo', '{}')"}
    assert "the arguments of a tool are" in str(await bench.failure(language, text[language]))


@BOTH
async def test_calls_made_together_run_together_and_answer_in_order(bench: Bench, language: Language) -> None:
    """Eight at a time, no more; a failed one does not take the others with it."""
    code: Code = {
        "python": "call_tools([{'name': 'meet', 'args': {'i': i}} for i in range(24)] + [{'name': 'fails'}])",
        "javascript": "return await call_tools("
        "[...Array(24).keys().map(i => ({name: 'meet', args: {i}})), {name: 'fails'}])",
    }
    answers = await bench.run(language, code[language])
    failed = {"code": "tool_error", "message": "the register is under water", "hint": ""}
    assert answers == [*({"ok": True, "result": {"i": i}} for i in range(24)), {"ok": False, "error": failed}]
    assert bench.tools.most == 8


@BOTH
async def test_a_failed_call_can_be_caught(bench: Bench, language: Language) -> None:
    """Its code and message are the script's to read."""
    code: Code = {
        "python": "try:\n    call_tool('nope')\nexcept RuntimeError as error:\n    answer = str(error)\nanswer",
        "javascript": "try { await call_tool('nope') } catch (error) { return error.message }",
    }
    assert await bench.run(language, code[language]) == "tool_not_found: No tool is named 'nope'."


@BOTH
async def test_a_failed_call_that_is_not_caught_ends_the_script(bench: Bench, language: Language) -> None:
    """The error says where, and which calls were made."""
    code: Code = {
        "python": "call_tool('echo')\ncall_tool('fails')",
        "javascript": "await call_tool('echo');\nawait call_tool('fails')",
    }
    error = await bench.failure(language, code[language])
    assert (error.error_code, error.delivery) == ("code_error", "executed")
    assert error.message.startswith("Line 2: ")
    assert "the register is under water" in error.message
    assert error.data == {
        "line": 2,
        "output": "",
        "calls": [
            {"name": "echo", "outcome": "ok", "count": 1},
            {"name": "fails", "outcome": "tool_error", "count": 1},
        ],
    }


@pytest.mark.parametrize(
    ("language", "code", "line", "says"),
    [
        ("python", "a = 1\nb = a / 0", 2, "ZeroDivisionError: division by zero"),
        ("python", "a = 1\n\nb = = 2", 3, "SyntaxError"),
        ("python", "call_tool(5)", 1, "TypeError: the name of a tool is a str"),
        ("python", "call_tool('echo', [1])", 1, "TypeError: the arguments of a tool are a dict"),
        ("python", "call_tool('echo', {'a': {1}})", 1, "TypeError"),
        ("javascript", "const a = 1;\nnull.b", 2, "TypeError: Cannot read properties of null"),
        ("javascript", "const a = 1;\n\nconst = 2", 3, "SyntaxError"),
        ("javascript", "await call_tool(5)", 1, "TypeError: the name of a tool is a string"),
        ("javascript", "await call_tool('echo', [1])", 1, "TypeError: the arguments of a tool are an object"),
        ("javascript", "throw 'a tantrum'", None, "a tantrum"),
    ],
)
async def test_an_error_in_a_script_is_told_with_its_line(
    bench: Bench, language: Language, code: str, line: int | None, says: str
) -> None:
    """What an agent needs to correct it; nothing was called."""
    error = await bench.failure(language, code)
    assert (error.error_code, error.delivery) == ("code_error", "not_sent")
    assert says in error.message
    assert (error.data or {}).get("line") == line
    assert bench.tools.asked == []


@BOTH
@pytest.mark.long  # starts programs, a second of it
async def test_what_a_script_prints_is_kept_up_to_a_limit(bench: Bench, language: Language) -> None:
    """Of a script that fails as well; more than the limit is marked."""
    code: Code = {
        "python": "print('one', 2)\nprint('three')",
        "javascript": "console.log('one', 2); console.log('three')",
    }
    await bench.run(language, code[language])
    assert bench.output == "one 2\nthree\n"
    error = await bench.failure(language, code[language] + "\nfoo.bar")
    assert (error.data or {})["output"] == "one 2\nthree\n"
    flood: Code = {
        "python": "for i in range(100000): print('x' * 100)",
        "javascript": "for (let i = 0; i < 1e5; i++) console.log('x'.repeat(100))",
    }
    await bench.run(language, flood[language])
    assert len(bench.output) <= 16_000
    assert bench.output.endswith("\n[... more was printed than is kept ...]")


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "{1, 2}"),
        ("python", "b'bytes'"),
        ("python", "float('nan')"),
        ("python", "class A: pass\nA()"),
        ("python", "a = []\nfor i in range(100000): a = [a]\na"),
        ("javascript", "return 10n"),
        ("javascript", "const a = {}; a.a = a; return a"),
        ("javascript", "return () => 1"),
        ("javascript", "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; return a"),
    ],
)
async def test_a_result_that_is_no_json_is_an_error_of_the_script(bench: Bench, language: Language, code: str) -> None:
    """Nothing is guessed."""
    assert (await bench.failure(language, code)).error_code == "code_error"


@BOTH
async def test_a_result_that_is_too_long_for_a_script_is_an_error_of_that_call(
    bench: Bench, language: Language
) -> None:
    """The call was made; the script goes on."""
    code: Code = {
        "python": "[r['ok'] for r in call_tools([{'name': 'long', 'args': {'chars': n}} for n in (1000000, 5000000)])]",
        "javascript": "return (await call_tools([1000000, 5000000].map(chars => ({name: 'long', args: {chars}}))))"
        ".map(r => r.ok)",
    }
    assert await bench.run(language, code[language]) == [True, False]
    assert [group["outcome"] for group in bench.ledger.groups()] == ["ok", "result_too_large"]
    assert bench.ledger.delivery == "executed"
