"""Groups of definitions that wait for their user, so that alike ones are decided on together.

A tool is here as REST lists it: its `name`, `server`, `effect`, `state`, `hash`, `approved_hash`, `findings` and, where
they were asked for, `changes`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

EFFECTS: Final = {"destructive": "destroys", "write": "writes", "read": "reads"}
"""Effects that a tool may have, in words, the gravest first."""
_ELIDED: Final = "…"

Tool = Mapping[str, Any]


class ApprovalFold(NamedTuple):
    """Tools whose definitions changed alike, or one tool.

    Attributes:
        tools: In their order.
        summary: What changed in them, in words; empty of one tool.
        changes: As of a tool; of several what they have in common, the rest left out.
        findings: All that the scanner says of them, each once.
    """

    tools: tuple[Tool, ...]
    summary: str
    changes: Sequence[Mapping[str, Any]]
    findings: Sequence[Mapping[str, Any]]


class ApprovalGroup(NamedTuple):
    """Tools of a server that may do the same, decided on together.

    Attributes:
        server: Configured name.
        effect: Of `EFFECTS`.
        is_doubted: Whether the scanner wants a person to read each of them.
        folds: The tools.
    """

    server: str
    effect: str
    is_doubted: bool
    folds: tuple[ApprovalFold, ...]

    @property
    def tools(self) -> list[Tool]:
        """All of them."""
        return [tool for fold in self.folds for tool in fold.tools]

    @property
    def title(self) -> str:
        """The common traits of the tools, in words."""
        return f"{self.server}, {EFFECTS[self.effect]}" + (", doubted by the scanner" if self.is_doubted else "")


def group_waiting(tools: Iterable[Tool]) -> list[ApprovalGroup]:
    """Group tools by what the scanner says, by what they may do and by server, the gravest first."""
    groups: dict[tuple[bool, int, str], dict[Any, list[Tool]]] = {}
    ranks = list(EFFECTS)
    for tool in tools:
        effect = tool.get("effect", "write")  # a gateway of an earlier version does not say it
        key = (not has_doubts(tool), ranks.index(effect), tool["server"])
        groups.setdefault(key, {}).setdefault(_build_fold_key(tool), []).append(tool)
    return [
        ApprovalGroup(server, ranks[rank], not is_fine, tuple(_build_fold(alike) for alike in folds.values()))
        for (is_fine, rank, server), folds in sorted(groups.items(), key=lambda item: item[0])
    ]


def has_doubts(tool: Tool) -> bool:
    """Whether the scanner wants a person to read the definition."""
    return any(finding["severity"] == "review" for finding in tool["findings"])


def compute_approval_digest(tools: Sequence[Tool], *, reopens: bool = False) -> str:
    """Digest of what was shown: of one tool its hash, of several one over names and hashes.

    That of a blocked tool, which is shown alone, is another than before the block: approving it lifts the block.

    Args:
        tools: Each with `name`, `hash` and `state`.
        reopens: Whether approving them also ends the distrust after a loss of the record.
    """
    is_blocked = any(tool["state"] == "blocked" for tool in tools)
    if len(tools) == 1 and not reopens and not is_blocked:
        return f"sha256:{tools[0]['hash']}"
    pairs = sorted([tool["name"], tool["hash"]] for tool in tools)
    facts = {"reopens": reopens, "tools": pairs} | ({"lifts_block": True} if is_blocked else {})
    text = json.dumps(facts, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _build_fold_key(tool: Tool) -> Any:
    """Key that tools which changed alike share: all words but those that were approved before."""
    if tool["state"] != "changed" or not tool.get("changes"):
        return tool["name"]
    changed = tuple((change["path"], _read_essence(change["words"])) for change in tool["changes"])
    return changed, frozenset((each["check"], each["place"], each["reason"]) for each in tool["findings"])


def _read_essence(words: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """The runs that alike changes share: around whole sentences only the new ones, else all words."""
    is_apart = all(_is_sentence(run["text"]) for run in words if run["kind"] != "same")
    return tuple((run["kind"], "" if is_apart and run["kind"] == "same" else run["text"]) for run in words)


def _is_sentence(text: str) -> bool:
    """Whether words stand by themselves, whatever is around them."""
    body = text.strip('" \n')
    return body[:1].isupper() and body.endswith((".", "!", "?"))


def _build_fold(tools: Sequence[Tool]) -> ApprovalFold:
    first = tools[0]
    if len(tools) == 1:
        return ApprovalFold((first,), "", first.get("changes", ()), first["findings"])
    changes = [
        {"path": alike[0]["path"], "words": [*map(_unite_runs, *(change["words"] for change in alike))]}
        for alike in zip(*(tool["changes"] for tool in tools), strict=True)
    ]
    findings = {(each["check"], each["place"], each["reason"]): each for each in first["findings"]}
    return ApprovalFold(tuple(tools), _summarize(len(tools), changes), changes, list(findings.values()))


def _unite_runs(*runs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a run that stands for those of several tools: its text only where all have it."""
    return runs[0] if all(run == runs[0] for run in runs) else {**runs[0], "text": _ELIDED}


def _summarize(count: int, changes: Sequence[Mapping[str, Any]]) -> str:
    """Say in words how several definitions changed alike, as `38 descriptions gained the same sentence`."""
    kinds = {run["kind"] for change in changes for run in change["words"]} - {"same"}
    paths = [change["path"] for change in changes]
    subject = f"{count} descriptions" if paths == ["description"] else f"{count} tools"
    place = "" if paths == ["description"] or len(paths) > 1 else f" in {paths[0]}"
    if len(paths) > 1 or len(kinds) != 1:
        return f"{subject} changed alike{place}"
    noun = (
        "sentence"
        if all(_is_sentence(run["text"]) for run in changes[0]["words"] if run["kind"] != "same")
        else "words"
    )
    return f"{subject} {'gained' if kinds == {'added'} else 'lost'} the same {noun}{place}"
