"""`mcpproxy check`: whether tools can be called now as they were approved, told by the exit status."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cyclopts import App

from smart_mcp_proxy.cli.support.access import has_listed, open_api
from smart_mcp_proxy.cli.support.failure import UsageError, add_next_step, extract_command
from smart_mcp_proxy.cli.support.output import indent_lines, plural, say, show, show_json, table
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.telemetry import printable

EXIT_STATUSES: Final[Mapping[str, int]] = {
    "ok": 0,
    "server_down": 10,
    "waiting": 11,
    "refused": 11,
    "unknown": 12,
    "changed": 13,
}
"""By verdict; of many tools the highest counts: the more a person has to do, the higher.

10 for a passing fault, 11 for what is blocked and 12 for what is unknown are those of mcpproxy-go's preflight.

Source: docs/preflight.md#exit-status"""
_NAMES_LIMIT: Final = 100

app = App(
    name="check",
    help_epilogue="""\
No tool is called. Exit status, the highest of all tools named:
  0   all can be called, and are as they were approved
  1   the check itself failed
  2   the words, the settings or the server file are at fault
  10  a server does not answer; try again later
  11  a tool or its server waits for approval, is blocked or disabled
  12  no tool has the name
  13  a definition is not the approved one, or not the one of the digest

A running gateway of the same data directory answers; without one the servers
are connected for the moment.

Examples:
  mcpproxy check github:create_issue
  mcpproxy check github:create_issue todo:add_task --json
  mcpproxy check github:create_issue@sha256:0123456789abcdef
  mcpproxy check github:create_issue && ./nightly.sh""",
)


@app.default
async def check(*tools: str, json: bool = False) -> int:
    """Check that tools can be called as they were approved, for cron and CI.

    Args:
        tools: SERVER:TOOL or the name under which it is listed; @sha256:... behind it holds it to that digest.
        json: Print the outcome as one object.
    """
    if not 1 <= len(tools) <= _NAMES_LIMIT:
        raise add_next_step(
            UsageError(f"{plural(len(tools), 'tool')} are named.", hint=f"Name 1 to {_NAMES_LIMIT} tools."),
            "mcpproxy tool list",
        )
    async with open_api(open_settings(), is_enough=has_listed(tools)) as api:
        outcomes = await api.check(tools)
    status = max(EXIT_STATUSES[outcome["verdict"]] for outcome in outcomes)
    if json:
        show_json({"ok": status == 0, "exit_status": status, "checks": outcomes})
        return status
    show(table(["tool", "verdict"], [[printable(each["name"]), each["verdict"]] for each in outcomes]))
    for each in outcomes:
        if each["verdict"] != "ok":
            say(indent_lines(printable(f"{each['name']}: {each['reason']} {each['hint']}".rstrip())))
    if status:
        say(f"Next: {_next_command(outcomes, status)}")
    return status


def _next_command(outcomes: Sequence[Mapping[str, Any]], status: int) -> str:
    """The command that helps with the first of the worst outcomes."""
    worst = next(each for each in outcomes if EXIT_STATUSES[each["verdict"]] == status)
    name = shell_word(printable(worst["name"]))
    if worst["code"] == "definition_changed":
        return f"mcpproxy tool show {name}"
    others = {"server_down": "mcpproxy server list", "refused": "mcpproxy server list", "unknown": "mcpproxy tool list"}
    return extract_command(printable(worst["hint"])) or others.get(worst["verdict"], f"mcpproxy approve {name}")
