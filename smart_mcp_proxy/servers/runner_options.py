"""Options of programs that start packages which change neither package, index, mounts nor rights."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

_DOCKER: Final = (
    r"-i|--interactive|--rm|--init|--read-only|--network=none|--cap-drop=\w+|--security-opt=no-new-privileges|"
    r"--pull=(?:always|missing|never)|--(?:memory|cpus|pids-limit)=[0-9][0-9.]*[bkmgBKMG]?|(?:-e |--env=)\w+(?:=.*)?"
)
_LISTED: Final[Mapping[str, str]] = {
    "npx": r"-y|--yes|-q|--quiet|--silent|--no-fund|--no-audit|--no-update-notifier",
    "uvx": r"-q|--quiet|--no-progress|--isolated|--python=[23](?:\.[0-9]{1,2}){0,2}",
    "dnx": r"-y|--yes",
    "docker": _DOCKER,
    "podman": _DOCKER,
    "nerdctl": _DOCKER,
}
"""By program; a pattern for an option with its value."""
_ALONE: Final = (
    r"(?s)-(?:it|ti|[tdP])|--(?:privileged|tty|detach|publish-all|offline|refresh|force|prefer-\w+|"
    r"no-(?!.*package)[\w-]+|.*=.*)"
)
"""Options that are not listed and take no word as their value; of any other the next word may be that."""


def may_be_passed(program: str, words: Sequence[str]) -> bool:
    """Whether an option, with its value where that is a word of its own, may come from anybody."""
    return re.fullmatch(_LISTED[program], " ".join(words), re.DOTALL) is not None


def count_run_words(args: Sequence[str]) -> int:
    """Number of the words in front by which an engine runs a container; 0 where it does something else."""
    return next((len(words) for words in (["run"], ["container", "run"]) if [*args[: len(words)]] == words), 0)


def has_unlisted(entry: Mapping[str, Any]) -> bool:
    """Whether an entry has options in front of its package that are not listed."""
    command, args = entry.get("command"), entry.get("args")
    return isinstance(args, list) and any(find_unlisted(str(command), list(map(str, args))))


def find_unlisted(command: str, args: Sequence[str]) -> Iterator[str]:
    """List the options in front of a package that are not listed, of npx, uvx, dnx and engines."""
    program, at = PurePath(command).name, count_run_words(args)
    while program in _LISTED and at < len(args) and args[at].startswith("-") and args[at] != "--":
        is_alone = may_be_passed(program, args[at : at + 1])
        is_pair = not is_alone and may_be_passed(program, args[at : at + 2])
        if not is_alone and not is_pair:
            yield args[at]
            is_pair = not re.fullmatch(_ALONE, args[at]) and not "".join(args[at + 1 : at + 2]).startswith("-")
        at += 2 if is_pair else 1
