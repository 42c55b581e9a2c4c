"""`mcpproxy call`: one tool, called by hand."""

import json as json_text
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from anyio import to_thread
from cyclopts import App, Parameter

from smart_mcp_proxy.cli.support.access import has_listed, open_api
from smart_mcp_proxy.cli.support.arguments import coerce, parse_json_object, parse_pairs
from smart_mcp_proxy.cli.support.failure import UsageError, next_step
from smart_mcp_proxy.cli.support.output import clean, say, show, show_json
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.telemetry import printable

app = App(
    name="call",
    help_epilogue="""\
Values are read as the tool's input schema asks for: numbers, true or false,
JSON for lists and objects, otherwise text. The exit status is 1 if the tool
reports a failure.

Examples:
  mcpproxy call github:create_issue title="It crashes" labels='["bug"]'
  mcpproxy call files:read_file --input-json '{"path": "notes.txt"}'
  echo '{"path": "notes.txt"}' | mcpproxy call files:read_file --input-json - --json""",
)


@app.default
async def call(
    name: str,
    /,
    *arguments: str,
    input_json: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    json: bool = False,
) -> int:
    """Call a tool.

    Args:
        name: SERVER:TOOL, or the name under which it is listed.
        arguments: Arguments as key=value.
        input_json: All arguments as one JSON object instead; - reads it from stdin.
        json: Print the whole result as the server sent it.
    """
    given = await _read_arguments(arguments, input_json)
    settings = open_settings()
    help_command = f"mcpproxy tool show {shell_word(name)}"
    async with open_api(settings, is_enough=has_listed([name])) as api:
        tool = await api.tool(name)
        with next_step(help_command):
            values = given if input_json is not None else coerce(given, tool.get("input_schema") or {})
            result = await api.call(tool["name"], values)
    is_error = bool(result.get("isError"))
    if json:
        show_json(result)
    elif is_error:
        say(f"error: '{printable(tool['name'])}' reports a failure.", style="red")
        for line in result_lines(result):
            say(line)
        say(f"Next: {help_command}")
    else:
        for line in result_lines(result):
            show(line)
    return 1 if is_error else 0


async def _read_arguments(words: tuple[str, ...], input_json: str | None) -> dict[str, Any]:
    if input_json is None:
        return dict(parse_pairs(words))
    if words:
        raise UsageError("Arguments are given both as key=value and with --input-json.", hint="Use one of them.")
    return parse_json_object(await to_thread.run_sync(sys.stdin.read) if input_json == "-" else input_json)


def result_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """A result for people: its text, its structured content as JSON, and what its other blocks are."""
    structured = result.get("structuredContent")
    for block in result.get("content") or []:
        if block.get("type") != "text":
            yield clean(f"[{_describe_block(block)}]")
        elif structured is None or not _says(block.get("text", ""), structured):
            yield clean(block.get("text", ""))
    if structured is not None:
        yield clean(json_text.dumps(structured, indent=2, ensure_ascii=False))


def _says(text: str, structured: Any) -> bool:
    """Whether a text block only repeats the structured content."""
    try:
        said = json_text.loads(text)
    except ValueError:
        return False
    return structured in (said, {"result": said})


def _describe_block(block: Mapping[str, Any]) -> str:
    """Description of a block that is not text."""
    kind = str(block.get("type"))
    held = block["resource"] if isinstance(block.get("resource"), Mapping) else block
    facts = [kind, str(held.get("uri") or ""), str(held.get("mimeType") or "")]
    if isinstance(data := held.get("data") or held.get("blob"), str):
        facts.append(f"{len(data) * 3 // 4:,} bytes")
    described = " ".join(filter(None, facts))
    return f"{described}: {held['text']}" if isinstance(held.get("text"), str) else described
