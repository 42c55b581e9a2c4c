"""Values that a publisher sets, has a default for, or asks the user for, as text of an entry.

An entry's text is looked through for `${...}` when its server starts. What a publisher writes must never read a
variable, a file or a stored secret of the user's, so `${` of theirs becomes `$${`, which stands for itself.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, Literal

import msgspec

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.registry.listing import Input, Value

Kind = Literal["variable", "header", "argument", "setting"]
"""Destination of a value: the environment, a header, the command line, or into the text of another value."""
Given = Mapping[str, Mapping[str, list[str]]]
"""Values of the user's by option and name (see `OPTIONS`); more than one only where a value may be repeated."""
OPTIONS: Final[Mapping[Kind, str]] = {
    "variable": "--env",
    "header": "--header",
    "argument": "--set",
    "setting": "--set",
}
"""The option of the command line that a value of each kind is given with."""
_HIDDEN: Final = "***"
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_NOT_A_VARIABLE: Final = re.compile(r"[^A-Za-z0-9]+")
_WORDS_CHARS: Final = 300


class Need(msgspec.Struct, frozen=True):
    """Input value that a server takes.

    Attributes:
        kind: Where it goes.
        name: Of the variable, header or argument.
        source: publisher (it is fixed), default, given, needed (from the variable named in `variable`), or left out.
        variable: The environment variable that it is read from at the start; empty for none.
        value: What the publisher sets or has as a default; empty otherwise.
        is_required: Whether the server needs it.
        is_secret: Whether it is a secret.
        description: The publisher's words.
        choices: Values that are allowed; empty for any.
    """

    kind: Kind
    name: str
    source: Literal["publisher", "default", "given", "needed", "left_out"]
    variable: str
    value: str
    is_required: bool
    is_secret: bool
    description: str
    choices: list[str]


@dataclass(slots=True)
class InputResolver:
    """Turns inputs into texts, and keeps what was needed for them.

    Attributes:
        given: The user's values.
        server: Name of the server, the beginning of the variables that its values are looked for in.
        is_shown: Whether the texts are for a screen: the user's own values are hidden then.
        needs: What was asked for so far.
    """

    given: Given
    server: str
    is_shown: bool = False
    needs: list[Need] = field(default_factory=list)

    def texts(self, kind: Kind, name: str, wanted: Input, *, is_repeated: bool = False) -> list[str]:
        """The values of an input as an entry holds them; none where it is left out.

        Raises:
            RequestError: A value of the user's does not fit.
        """
        given = self.given.get(OPTIONS[kind], {}).get(name, [])
        if wanted.value is not None:
            if given:
                raise RequestError(f"{name!r} is set by the server's publisher.", hint=f"Leave {OPTIONS[kind]} out.")
            text = _text(wanted.value)
            self._note(kind, name, wanted, "publisher", value=text)
            return [_escape_references(text) if kind == "setting" else self.fill_template(text, wanted.variables or {})]
        if given:
            if len(given) > 1 and not is_repeated:
                raise RequestError(f"{name!r} is given {len(given)} times.", hint="It can be given once.")
            for value in given:
                _check(name, wanted, value)
            self._note(kind, name, wanted, "given")
            return [_HIDDEN] * len(given) if self.is_shown else list(given)
        if wanted.default is not None:
            text = _text(wanted.default)
            self._note(kind, name, wanted, "default", value=text)
            return [_escape_references(text)]
        if wanted.is_required:
            variable = _variable_named(name if kind == "variable" else f"{self.server} {name}")
            self._note(kind, name, wanted, "needed", variable=variable)
            return [f"${{{variable}}}"]
        self._note(kind, name, wanted, "left_out")
        return []

    def text(self, kind: Kind, name: str, wanted: Input) -> str | None:
        """The one value of an input; None where it is left out."""
        return next(iter(self.texts(kind, name, wanted)), None)

    def fill_template(self, template: str, variables: Mapping[str, Input]) -> str:
        """A publisher's text with each `{name}` that `variables` has filled in; other braces stay."""
        parts, end = [], 0
        for found in _BRACES.finditer(template):
            wanted = variables.get(found[1])
            value = None if wanted is None else self.text("setting", found[1], wanted)
            parts += [
                _escape_references(template[end : found.start()]),
                _escape_references(found[0]) if wanted is None else value or "",
            ]
            end = found.end()
        return _join_parts([*parts, _escape_references(template[end:])])

    def require_known(self) -> None:
        """Passes if every value of the user's has a place.

        Raises:
            RequestError: One has not.
        """
        for option, values in self.given.items():
            known = {need.name for need in self.needs if OPTIONS[need.kind] == option}
            for name in values:
                if name not in known:
                    raise _unknown(name, option, known)

    def _note(
        self,
        kind: Kind,
        name: str,
        wanted: Input,
        source: Literal["publisher", "default", "given", "needed", "left_out"],
        *,
        variable: str = "",
        value: str = "",
    ) -> None:
        choices = [_text(choice) for choice in wanted.choices or ()]
        words = " ".join((wanted.description or "").split())[:_WORDS_CHARS]
        need = Need(kind, name, source, variable, value, wanted.is_required, wanted.is_secret, words, choices)
        if need not in self.needs:
            self.needs.append(need)


def _unknown(name: str, option: str, known: set[str]) -> RequestError:
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    words = ", ".join(near or sorted(known)[:20]) or "none"
    return RequestError(
        f"The server takes no {option} {name[:100]!r}.", hint=f"{'Close' if near else 'It takes'}: {words}."
    )


def _check(name: str, wanted: Input, value: str) -> None:
    """Passes for a value that an input allows; one with `${...}` is known only when the server starts."""
    if "${" in value:
        return
    choices = [_text(choice) for choice in wanted.choices or ()]
    if choices and value not in choices:
        raise RequestError(f"The value given for {name!r} does not fit.", hint=f"Use one of: {', '.join(choices)}.")
    if wanted.format == "boolean" and value not in ("true", "false"):
        raise RequestError(f"The value given for {name!r} does not fit.", hint="Use true or false.")
    if wanted.format == "number" and not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value):
        raise RequestError(f"The value given for {name!r} does not fit.", hint="Use a number.")


def _text(value: Value) -> str:
    """A value as text; booleans and numbers as `server.json` says."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escape_references(text: str) -> str:
    return text.replace("${", "$${")


def _join_parts(parts: Iterable[str]) -> str:
    """Texts put together; a `$` and a `{` that meet make no reference."""
    whole = ""
    for part in parts:
        whole += part if not (whole.endswith("$") and part.startswith("{")) else f"${part}"
    return whole


def _variable_named(name: str) -> str:
    """The environment variable in which a value of that name is looked for."""
    words = _NOT_A_VARIABLE.sub("_", name).strip("_").upper()
    return words if words and not words[0].isdigit() else f"VALUE_{words}"
