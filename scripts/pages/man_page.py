"""The manual page, written from the same grammar as `--help`."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from cyclopts import App

from smart_mcp_proxy.cli.app import COMMANDS, build_app
from smart_mcp_proxy.settings import all_settings

_EXAMPLE = "  "


def man_page() -> str:
    """The page of all commands in troff, for section 1."""
    app = build_app()
    lines = [
        '.\\" Written by scripts/regenerate_docs.py from the commands themselves.',
        '.TH MCPPROXY 1 "" "mcpproxy" "User Commands"',
        ".SH NAME",
        _escape("mcpproxy - one search tool in front of all your MCP servers"),
        ".SH SYNOPSIS",
        ".B mcpproxy",
        '.RI [ COMMAND " [" OPTIONS "] [" ARGUMENTS ]]',
        ".SH DESCRIPTION",
        *_write_epilogue(app.help_epilogue),
        ".SH COMMANDS",
    ]
    for name in COMMANDS:
        lines += _write_command(app[name], name)
    lines.append(".SH ENVIRONMENT")
    for setting in all_settings():
        default = f" ({setting.default})" if setting.default else ""
        lines += [".TP", f".B {_escape(setting.variable)}", _escape(f"{setting.help}{default}")]
    lines += [".TP", ".B NO_COLOR", "Set to anything: no colours."]
    lines += [
        ".SH EXIT STATUS",
        "0 done; 1 failed; 2 usage, settings, server file, port or data directory; 130 Ctrl-C.",
    ]
    return "\n".join(lines) + "\n"


def _write_command(app: App, *words: str) -> Iterator[str]:
    """A command, and those below it."""
    yield f".SS {_escape(' '.join(words))}"
    yield _escape(_first_part(app.help))
    if app.default_command is not None:
        for argument in app.assemble_argument_collection(parse_docstring=True):
            if argument.show:
                yield from (".TP", _write_name(argument), _escape(argument.parameter.help or ""))
    yield from _write_epilogue(app.help_epilogue)
    for name in app:
        if not name.startswith("-") and app[name].show:
            yield from _write_command(app[name], *words, name)


def _write_name(argument: Any) -> str:
    is_switch = argument.hint is bool or not argument.names[0].startswith("-")
    name = ", ".join(each for each in argument.names if not each.startswith("--no-") or each == argument.names[0])
    return f".B {_escape(name)}" if is_switch else f'.BI {_escape(name)} " VALUE"'


def _first_part(text: str | None) -> str:
    return " ".join(re.split(r"\n\s*Args:", text or "")[0].split())


def _write_epilogue(text: str | None) -> Iterator[str]:
    """Closing text of a help page: prose, and commands line by line."""
    for block in (text or "").split("\n\n"):
        lines = block.split("\n")
        if all(line.startswith(_EXAMPLE) for line in lines[1:]) and len(lines) > 1:
            yield from (".PP", _escape(lines[0]), *_write_examples(lines[1:]))
        elif block:
            yield from (".PP", *map(_escape, lines))


def _write_examples(lines: Iterable[str]) -> Iterator[str]:
    yield from (".RS 2", ".nf")
    for line in lines:
        command, _, remark = re.sub(r" {2,}", "\0", line.strip()).partition("\0")
        yield _escape(command)
        if remark:
            yield _escape(f"    {remark}")
    yield from (".fi", ".RE")


def _escape(text: str) -> str:
    """Text that troff shows as it is written."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
