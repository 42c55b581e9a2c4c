"""`mcpproxy approve`: what waits for the user, what it says, and the decision."""

import re
import sys
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

from cyclopts import App, Parameter
from rich.text import Text

from smart_mcp_proxy.cli.support.access import open_api
from smart_mcp_proxy.cli.support.api import Api
from smart_mcp_proxy.cli.support.failure import UsageError, add_next_step, ask_line, next_step
from smart_mcp_proxy.cli.support.output import indent_lines, plural, say, show, show_json, table
from smart_mcp_proxy.cli.support.render import say_isolation
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.errors import ConflictError, ProxyError, ToolNotFoundError
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.policy.approval_groups import (
    EFFECTS,
    ApprovalFold,
    ApprovalGroup,
    compute_approval_digest,
    group_waiting,
    has_doubts,
)
from smart_mcp_proxy.telemetry import printable

app = App(
    name="approve",
    help_epilogue="""\
The tools of a server's first list are agreed to by configuring the server. A
tool that comes later, or whose definition changes in any way, is kept from
agents until you approve it here. Where "trust" in the server's entry, or
MCPPROXY_TRUST, is "scan", that holds for each tool in which the scanner finds
something, those of the first list too; where it is "trusted", for none. A tool
that calls itself less dangerous than before waits for you in any case. A tool
that you blocked stays blocked until you approve it by name.

A server may list another definition at any moment. What you approve is what you
were shown: the question shows it first, and --yes takes the digest that --diff
prints below it. If it is another by now, nothing is approved. Several tools are
asked about in groups, by server and by what they may do, those first in which
the scanner finds something; definitions that changed alike are shown once.

Examples:
  mcpproxy approve                             what waits
  mcpproxy approve github:create_issue         show this definition, ask, approve it
  mcpproxy approve github                      the same for all that waits of a server
  mcpproxy approve "*:get_*" --server github   the same for names of a pattern
  mcpproxy approve github:create_issue --diff  what changed, and the digest for --yes
  mcpproxy approve --all --diff                the same for everything that waits
  mcpproxy approve --all --yes --digest sha256:...
  mcpproxy approve --reseal                    the key of the seals was lost: believe what stands""",
)

_STYLES = {"removed": "red strike", "added": "green", "same": ""}
_MARKS = {"removed": ("[-", "-]"), "added": ("{+", "+}"), "same": ("", "")}
"""Off a terminal, where there is no colour: as `git diff --word-diff` writes it."""
SHOWN_FIELDS = 3
SHOWN_CHARS = 160
"""Characters shown, in a list, of words that many definitions gained."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
"""Whole, unlike the one that agents send back: a server can prepare two definitions that share 64 bits."""
_SHOWN_DIGEST_CHARS = len("sha256:") + 16
"""Enough to see that a definition changed, and as agents get it.

Source: docs/design/wire-formats.md#answers-to-a-search"""


@app.default
async def approve(  # noqa: PLR0913  (one parameter per flag)
    name: str | None = None,
    /,
    *,
    server: str | None = None,
    every: Annotated[bool, Parameter(name="--all")] = False,
    list_only: Annotated[bool, Parameter(name="--list")] = False,
    diff: bool = False,
    yes: bool = False,
    digest: str | None = None,
    fresh: bool = False,
    reseal: bool = False,
    json: bool = False,
) -> None:
    """Show and approve tools that wait for you.

    Args:
        name: SERVER:TOOL, a pattern of such names, or a server for all its tools that wait.
        server: Only tools of this server.
        every: Approve everything that waits.
        list_only: Only show what waits, as without a name.
        diff: Only show what changed, word by word, and the digest of it.
        yes: Approve without asking what has this digest.
        digest: Of what was looked at, as --diff prints it; anything else is not approved.
        fresh: Connect to the servers first instead of trusting the stored catalog.
        reseal: Believe all that was decided as it stands, after the key of its seals was lost or changed.
        json: Print what waits, or what was approved, as one object.
    """
    if every and (name is not None or server is not None):
        raise UsageError("Name one tool or server, or say --all.")
    wanted = _Wanted(name, server, every)
    if reseal and (wanted.is_named or list_only or diff or digest):
        raise UsageError("--reseal is about all decisions: say it alone, or with --yes, --json and --fresh.")
    _require_digest(wanted, digest, yes=yes)
    async with open_api(open_settings(), is_stored_enough=lambda _: not fresh) as api:
        found = await api.approvals(has_changes=True)
        await _require_known(api, found["tools"], wanted)
        chosen = _select_tools(found["tools"], wanted)
        reopens = every and found["is_closed"]
        named = wanted.filter_tools(found["tools"])
        held = await _read_isolation(api, {tool["server"] for tool in named}, says=not json)
        if reseal:
            await _reseal(api, yes=yes, json=json)
        elif diff:
            _show_changes(chosen, wanted.command, held, reopens=reopens, json=json)
        elif list_only or not wanted.is_named:
            _show_list({**found, "tools": named, "isolation": held}, json=json)
        elif not chosen and not reopens:
            _say_nothing_waits(wanted, json=json)
        else:
            with next_step(f"{wanted.command} --diff" if found.get("is_sealed", True) else "mcpproxy approve --reseal"):
                await _decide(api, chosen, digest, reopens=reopens, yes=yes, json=json)


class _Wanted(NamedTuple):
    """The tools that are meant, as they were named."""

    name: str | None
    server: str | None
    is_all: bool

    @property
    def is_named(self) -> bool:
        """Whether any are."""
        return self.is_all or self.name is not None or self.server is not None

    @property
    def is_pattern(self) -> bool:
        """Whether the name may be that of several tools."""
        return self.name is not None and any(mark in self.name for mark in "*?[")

    @property
    def command(self) -> str:
        """The command that approves these, as far as they are named."""
        words = [] if self.name is None else [shell_word(self.name)]
        words += [] if self.server is None else ["--server", shell_word(self.server)]
        return " ".join(["mcpproxy approve", *words, *["--all"] * self.is_all])

    def filter_tools(self, tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The tools among these that are meant."""
        found = [tool for tool in tools if self.server in (None, tool["server"])]
        named = [tool for tool in found if self.name in (None, tool["name"], tool["server"])]
        if named or not self.is_pattern:
            return named
        return [tool for tool in found if fnmatchcase(tool["name"], self.name or "")]


async def _read_isolation(api: Api, names: Collection[str], *, says: bool) -> dict[str, str]:
    """Read how these servers are held, as far as their processes are ours; said to people as well."""
    servers = (await api.status())["servers"]  # a gateway of an earlier version does not say it
    held = {each["name"]: each["isolation"] for each in servers if each["name"] in names and each.get("isolation")}
    for name in held if says else ():
        say_isolation(await api.manage("GET", f"servers/{quote(name, safe='')}"))
    return held


def _format_hash(tool: dict[str, Any]) -> str:
    """Digest of the definition alone, as agents get its beginning."""
    return f"sha256:{tool['hash']}"


def _require_digest(wanted: _Wanted, digest: str | None, *, yes: bool) -> None:
    """Pass where nothing is approved unseen.

    Raises:
        UsageError: It is not asked, and not said what was looked at; or that is no digest.
    """
    if digest is not None and _DIGEST.fullmatch(digest):
        return
    if digest is not None:
        error = UsageError(
            f"--digest is {digest[:100]!r}.", hint='Give it whole, as --diff prints it: "sha256:" and 64 digits.'
        )
    elif yes and wanted.is_named:
        hint = "Look at what waits first; the command for it is printed below."
        error = UsageError("--yes approves what you have looked at, and needs its --digest.", hint=hint)
    else:
        return
    error.add_note(f"{wanted.command} --diff")
    raise error


async def _reseal(api: Api, *, yes: bool, json: bool) -> None:
    if not yes:
        _require_terminal("Look at `mcpproxy approve --list`, then say --yes.")
        say("Whoever can write to the catalog can have changed what stands there since it was sealed.")
        if not await _is_agreed("Believe everything that was approved and blocked as it stands?"):
            say("Nothing was believed.")
            return
    count = await api.reseal()
    say("Servers that ran before there was a sandbox run as they did from the gateway's next start on.")
    show_json({"decisions": count}) if json else say(f"Sealed {plural(count, 'decision')} about tools.")


def _require_terminal(hint: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError("This asks before it approves, and there is no terminal to ask on.", hint=hint)


async def _require_known(api: Api, tools: Sequence[dict[str, Any]], wanted: _Wanted) -> None:
    """Raise the gateway's error unless every name is of a configured server."""
    is_server = wanted.name is not None and ":" not in wanted.name and not wanted.is_pattern
    name = wanted.name if is_server and not wanted.filter_tools(tools) else None
    for server in (wanted.server, name):
        if server is not None:
            await api.approvals(server)


def _select_tools(tools: Sequence[dict[str, Any]], wanted: _Wanted) -> list[dict[str, Any]]:
    """The tools that are meant; a blocked one only where it is named itself.

    Raises:
        ToolNotFoundError: A tool is named that does not wait.
    """
    name = wanted.name
    chosen = [tool for tool in wanted.filter_tools(tools) if tool["state"] != "blocked" or tool["name"] == name]
    if name is not None and not chosen and ":" in name and not wanted.is_pattern:
        raise add_next_step(
            ToolNotFoundError(
                f"Tool {name!r} does not wait for approval: it is approved, or its server does not list it.",
                hint="See what waits with: mcpproxy approve --list",
            ),
            "mcpproxy approve --list",
        )
    return chosen


def _say_nothing_waits(wanted: _Wanted, *, json: bool) -> None:
    if json:
        show_json({"approved": [], "moved": []})
    name = wanted.name or wanted.server
    say(f"Nothing of {name} waits for approval." if name else "Nothing waits for approval.")


def _show_list(found: dict[str, Any], *, json: bool) -> None:
    if json:
        told = [{**_drop_changes(tool), "digest": compute_approval_digest([tool])} for tool in found["tools"]]
        show_json({**found, "tools": told})
        return
    if found["is_closed"]:
        say("The record of what you approved was lost with a damaged catalog. Nothing is trusted before you say so:")
        say("  mcpproxy approve --all", style="bold")
    if not found.get("is_sealed", True):  # a gateway of an earlier version does not say it
        say("Nothing that was decided counts: the key of its seals was lost or is another. Believe what stands with:")
        say("  mcpproxy approve --reseal", style="bold")
    if not found["tools"]:
        say("Nothing waits for approval.")
        return
    blocked = [tool for tool in found["tools"] if tool["state"] == "blocked"]
    groups = group_waiting(tool for tool in found["tools"] if tool["state"] != "blocked")
    rows = [_build_row(group, fold) for group in (*groups, *group_waiting(blocked)) for fold in group.folds]
    show(table(["Tool", "May", "State", "What differs", "Scanner", "Digest"], rows))
    say("See what changed with: mcpproxy approve SERVER:TOOL --diff", style="dim")
    if len(groups) > 1:
        say(f"Decide on all in {len(groups)} steps with: mcpproxy approve --all", style="dim")


def _build_row(group: ApprovalGroup, fold: ApprovalFold) -> list[str | Text]:
    tool = dict(fold.tools[0])
    changed = "".join(run["text"] for change in fold.changes for run in change["words"] if run["kind"] != "same")
    return [
        _name_fold(fold),
        EFFECTS[group.effect],
        _state(tool),
        f'{fold.summary}: "{printable(changed.strip())[:SHOWN_CHARS]}"' if fold.summary else _fields(tool),
        _doubts(tool),
        (compute_approval_digest(fold.tools) if fold.summary else _format_hash(tool))[:_SHOWN_DIGEST_CHARS],
    ]


def _name_fold(fold: ApprovalFold) -> str:
    first = fold.tools[0]
    return printable(f"{first['server']}: {len(fold.tools)} tools" if fold.summary else first["name"])


def _drop_changes(tool: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tool.items() if name != "changes"}


def _state(tool: dict[str, Any]) -> Text:
    styles = {"pending": "yellow", "changed": "red", "blocked": "dim", "altered": "red"}
    counted = f" ({printable(tool['approvals'])})" if tool.get("approvals") else ""
    return Text(f"{tool['state']}{counted}", style=styles[tool["state"]])


def _fields(tool: dict[str, Any]) -> str:
    if tool["state"] == "altered":
        return "its row in the catalog, beside the gateway"
    if not tool["approved_hash"]:
        return "new tool"
    fields = tool["fields"]
    more = f" and {len(fields) - SHOWN_FIELDS} more" if len(fields) > SHOWN_FIELDS else ""
    return (", ".join(fields[:SHOWN_FIELDS]) or "nothing") + more


def _doubts(tool: dict[str, Any]) -> str:
    if not has_doubts(tool):
        return "nothing found"
    grave = [finding for finding in tool["findings"] if finding["severity"] == "review"]
    return f"{grave[0]['reason']} ({grave[0]['place']})" + (f" +{len(grave) - 1}" if len(grave) > 1 else "")


def _show_changes(
    chosen: Sequence[dict[str, Any]], command: str, held: dict[str, str], *, reopens: bool, json: bool
) -> None:
    digest = compute_approval_digest(chosen, reopens=reopens)
    if json:
        details = [{"approval": _drop_changes(tool), "changes": tool["changes"]} for tool in chosen]
        show_json({"tools": details, "digest": digest, "isolation": held})
        return
    if not chosen:
        say("Nothing waits for approval.")
    groups = group_waiting(chosen)
    for number, group in enumerate(groups, 1):
        _show_group(group, number, len(groups))
    if chosen or reopens:
        show(f"Approve {'this' if len(chosen) == 1 else 'these'} as shown: {command} --yes --digest {digest}")


def _show_group(group: ApprovalGroup, number: int, count: int) -> None:
    if count > 1:
        title = f"{number} of {count}: {printable(group.title)}, {plural(len(group.tools), 'tool')}"
        show(Text(title, style="bold underline"))
    for fold in group.folds:
        show(_page(fold))


def _page(fold: ApprovalFold) -> Text:
    """Changes of a tool, or of several alike, removed words struck out in red and added ones in green."""
    page = Text.assemble((_name_fold(fold), "bold"), f" ({fold.tools[0]['state']}) {fold.summary}".rstrip(), "\n")
    if fold.summary:
        page.append(f"  {printable(', '.join(tool['tool'] for tool in fold.tools))}\n")
    for change in fold.changes:
        page.append(f"  {printable(change['path'])}: ", style="dim")
        for words in change["words"]:
            opening, closing = ("", "") if sys.stdout.isatty() else _MARKS[words["kind"]]
            page.append(f"{opening}{indent_lines(words['text'])}{closing}", style=_STYLES[words["kind"]])
        page.append("\n")
    for finding in fold.findings:
        remark = printable(f'{finding["reason"]} ({finding["place"]}: "{finding["excerpt"]}")')
        page.append(f"  scanner, {finding['severity']}: {remark}\n", style="yellow")
    return page


async def _decide(
    api: Api, chosen: Sequence[dict[str, Any]], digest: str | None, *, reopens: bool, yes: bool, json: bool
) -> None:
    if not yes:
        _require_terminal("Approve without being asked what --diff shows: with --yes and the --digest that it prints.")
    if digest not in (None, compute_approval_digest(chosen, reopens=reopens)):
        raise ConflictError("What waits is no longer what was looked at.", hint="Nothing is approved. Look again.")
    agreed = chosen if yes else await _ask_by_group(chosen)
    is_whole = len(agreed) == len(chosen)
    if not agreed and not (is_whole and (yes or await _is_agreed("Trust first lists again?"))):
        say("Nothing was approved.")
        return
    await _approve(api, agreed, reopens=reopens and is_whole, json=json)


async def _ask_by_group(chosen: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Show what is asked about, group by group; return what was agreed to."""
    agreed: list[dict[str, Any]] = []
    groups = group_waiting(chosen)
    for number, group in enumerate(groups, 1):
        _show_group(group, number, len(groups))
        if await _is_agreed(f"Approve {plural(len(group.tools), 'tool')}?"):
            agreed += [dict(tool) for tool in group.tools]
    return agreed


async def _approve(api: Api, chosen: Sequence[dict[str, Any]], *, reopens: bool, json: bool) -> None:
    # A block that was not seen stays: somebody has set it since. One tool alone was named, and its block is lifted.
    lifts = all(tool["state"] == "blocked" for tool in chosen)
    decided = await api.approve({tool["name"]: tool["hash"] for tool in chosen}, reopens=reopens, lifts=lifts)
    digests = {tool["name"]: _format_hash(tool) for tool in chosen if tool["name"] in decided["approved"]}
    if json:
        show_json({**decided, "digests": digests})
    else:
        if digests or not decided.get("counted"):
            show(table(["Approved", "Digest"], [[printable(name), digest] for name, digest in digests.items()]))
            say(f"Approved {plural(len(digests), 'tool')}; agents see them within two seconds.")
        if counted := decided.get("counted"):
            say(f"Counted for {plural(len(counted), 'tool')}, which others have to approve as well.")
    if decided["moved"]:
        names = ", ".join(decided["moved"][:SHOWN_FIELDS])
        raise ProxyError(
            f"{plural(len(decided['moved']), 'tool')} not approved, changed or blocked meanwhile: {names}.",
            hint="Look at them again.",
            code="conflict",
        )


async def _is_agreed(question: str) -> bool:
    answer = ask_line(f"{question} [y/N]")  # here: Ctrl-C does not end a thread that reads
    return answer.strip().lower() in ("y", "yes")
