"""`mcpproxy tool`: list tools, show one, and what was learned about them from use."""

import json as json_text
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from smart_mcp_proxy.cli.commands.catalog.search import has_tools
from smart_mcp_proxy.cli.support.access import open_api, open_at_rest
from smart_mcp_proxy.cli.support.failure import UsageError
from smart_mcp_proxy.cli.support.output import format_waiting_count, indent_lines, plural, say, show, show_json
from smart_mcp_proxy.cli.support.render import tools_table
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.telemetry import printable

if TYPE_CHECKING:
    from smart_mcp_proxy.gateway import Gateway

app = App(
    name="tool",
    help_epilogue="""\
Examples:
  mcpproxy tool list --server github
  mcpproxy tool show github:create_issue
  mcpproxy tool forget github:create_issue""",
)


def knows(name: str) -> "Callable[[Gateway], bool]":
    """Whether a gateway has a tool of that name."""
    return lambda gateway: gateway.visible.find(name) is not None


@app.command(name="list", help_epilogue="Examples:\n  mcpproxy tool list\n  mcpproxy tool list --server github --json")
async def list_tools(*, server: str | None = None, fresh: bool = False, json: bool = False) -> None:
    """List all tools with their parameters.

    Args:
        server: Only tools of this server.
        fresh: Connect to the servers first instead of trusting the stored catalog.
        json: Print a list of objects.
    """
    stored_will_do = (lambda _: False) if fresh else has_tools
    async with open_api(open_settings(), is_stored_enough=stored_will_do) as api:
        tools = await api.tools(server)
        count = 0 if json else await api.count_waiting(server)
    if json:
        show_json(tools)
        return
    if tools:
        show(tools_table(tools))
    next_words = " One of them in full: mcpproxy tool show NAME" if tools else ""
    say(f"{plural(len(tools), 'tool')}.{next_words}", style="dim")
    if count:
        say(f"{format_waiting_count(count, 'more tool')}: mcpproxy approve --list", style="yellow")


@app.command(name="show", help_epilogue="Examples:\n  mcpproxy tool show github:create_issue")
async def show_tool(name: str, /, *, fresh: bool = False, json: bool = False) -> None:
    """Show one tool's whole definition, and the questions that led to it if the gateway learns.

    Args:
        name: SERVER:TOOL, or the name under which it is listed.
        fresh: Connect to its server first instead of trusting the stored catalog.
        json: Print it as one object.
    """
    stored_will_do = (lambda _: False) if fresh else knows(name)
    async with open_api(open_settings(), is_stored_enough=stored_will_do) as api:
        tool = await api.tool(name)
    if json:
        show_json(tool)
        return
    show("\n".join(_page(tool)))
    say(f"Call it with: mcpproxy call {shell_word(tool['name'])} key=value ...", style="dim")


def _page(tool: Mapping[str, Any]) -> list[str]:
    lines = [printable(tool["name"]), f"  listed as {tool['listed_name']}; agents call it with {tool['call_with']}"]
    hints = ", ".join(f"{name}: {json_text.dumps(value)}" for name, value in tool["annotations"].items())
    if hints:
        lines.append(f"  annotations: {hints}")
    lines += [f"  digest: {tool['digest']}" + (" (not confirmed by its server yet)" if tool["stale"] else ""), ""]
    lines += [indent_lines(tool["description"]) or "(no description)", ""]
    for title, key in (("Input schema", "input_schema"), ("Output schema", "output_schema")):
        if key in tool:
            lines += [f"{title}:", json_text.dumps(tool[key], indent=2, ensure_ascii=False), ""]
    if tool["examples"]:
        lines += ["Questions that led to it:", *map(_example, tool["examples"]), ""]
    return lines[:-1]


def _example(example: Mapping[str, Any]) -> str:
    last = time.strftime("%Y-%m-%d %H:%M", time.localtime(example["last_used_s"]))
    remark = "" if example["is_confirmed"] else ", not searched with before it is used again"
    return f"  {printable(example['question'])} ({example['uses']} times, last {last}{remark})"


@app.command(
    name="forget",
    help_epilogue="""\
Examples:
  mcpproxy tool forget github:create_issue
  mcpproxy tool forget github:create_issue --question "report a bug"
  mcpproxy tool forget --all""",
)
async def forget_examples(
    name: str | None = None,
    /,
    *,
    question: str | None = None,
    every: Annotated[bool, Parameter(name="--all")] = False,
    json: bool = False,
) -> None:
    """Forget the questions that led to a tool, learned from use.

    Args:
        name: SERVER:TOOL, or the name under which it is listed.
        question: Only this one.
        every: Of all tools.
        json: Print how many as an object.
    """
    if every == (name is not None):
        raise UsageError("Name one tool, or say --all.")
    async with open_at_rest(open_settings()) as api:
        count = await api.forget_examples(name, question)
    if json:
        show_json({"forgotten": count})
        return
    say(f"Forgot {plural(count, 'question')}.")
