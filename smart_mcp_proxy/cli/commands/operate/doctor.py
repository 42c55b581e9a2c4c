"""`mcpproxy doctor`: everything that could be wrong, looked at one after the other."""

from typing import TYPE_CHECKING

from cyclopts import App
from rich.text import Text

from smart_mcp_proxy.cli.support.output import clean, plural, say, show, show_json, table
from smart_mcp_proxy.cli.support.start import open_settings

if TYPE_CHECKING:
    from smart_mcp_proxy.cli.commands.operate.doctor_checks import CheckResult

app = App(
    name="doctor",
    help_epilogue="""\
Looks at the server file, the data directory, the port, the programs that
servers need, the gateways that run and those that share their database, and
connects to every server. The exit status is 1 if anything fails.

Examples:
  mcpproxy doctor
  mcpproxy doctor --json""",
)

_STYLES = {"ok": "green", "warning": "yellow", "fail": "red"}


@app.default
async def doctor(*, json: bool = False) -> int:
    """Check the whole set-up and say what to repair.

    Args:
        json: Print {"ok", "checks"}.
    """
    settings = open_settings()
    # Here and not above: importing the gateway takes a second, and the command line is parsed before it.
    from smart_mcp_proxy.cli.commands.operate.doctor_checks import examine

    findings = await examine(settings)
    failures = sum(finding.outcome == "fail" for finding in findings)
    if json:
        checks = [
            {"check": one.subject, "outcome": one.outcome, "message": one.message, "hint": one.hint} for one in findings
        ]
        show_json({"ok": not failures, "checks": checks})
        return 1 if failures else 0
    show(table(["check", "outcome", "what was found"], [_row(finding) for finding in findings]))
    if not failures:
        say("Nothing fails.")
        return 0
    say(f"{plural(failures, 'check')} failed.", style="red")
    first = next(finding for finding in findings if finding.outcome == "fail")
    say(f"Next: {first.command}")
    return 1


def _row(finding: "CheckResult") -> list[str | Text]:
    outcome = Text(finding.outcome, style=_STYLES[finding.outcome])
    return [finding.subject, outcome, clean(f"{finding.message} {finding.hint}".rstrip())]
