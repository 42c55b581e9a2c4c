"""What a server wants to know from a client before it answers: may it ask, and how is the question shown?"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

__all__ = ["SERVER_META_KEY", "InputFault", "input_fault", "shown_inputs"]

SERVER_META_KEY: Final = "dev.smartmcpproxy/server"
"""Where a question says which server asks."""
_CAPABILITIES: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_MAX_REQUESTS: Final = 16
"""In one result; somebody is to answer them by hand."""

_HARMLESS_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
"""Formats of texts that are no secret. Source: MCP 2026-07-28, client/elicitation, PrimitiveSchemaDefinition."""
_SECRET_WORDS: Final = re.compile(
    r"\b(?:pass ?(?:word|phrase|code)s?|passwd|pwd|pin (?:code|number)|credentials?|cvv|cvc|totp|otp|mnemonic|"
    r"(?:api|access|private|secret|ssh|signing|encryption|recovery) ?keys?|client secrets?|secret (?:value|string)s?|"
    r"(?:api|access|auth|authentication|authorization|bearer|refresh|session|security|oauth|personal access) ?tokens?|"
    r"(?:one time|2fa|mfa|two factor|verification|security|backup|recovery|authentication) ?(?:codes?|answers?)|"
    r"(?:credit|debit|payment)? ?card numbers?|(?:seed|recovery) ?phrases?|social security|ssn|"
    r"passworte?r?|kennworte?r?|mot de passe|contrasena|senha|wachtwoord|haslo)\b"
)
"""Over text that `_plain` has made."""
_SECRET_PARTS: Final = (
    "парол",
    "密码",
    "密碼",
    "口令",
    "パスワード",
    "비밀번호",
    "암호",
    "كلمة المرور",
    "סיסמה",
    "पासवर्ड",
)
"""The same where words are not found by their ends."""
_SECRET_NAMES: Final = re.compile(r"(?:^| )(?:token|secret|pin|pass)s?$")
"""What says it as the last word of a field's name, and means many other things in a sentence."""


@dataclass(frozen=True, slots=True)
class InputFault:
    """Why a server's questions are not passed on.

    Attributes:
        kind: undeclared: the client said nothing of being asked this; malformed: not what the protocol knows; secret:
            it asks for what no form may ask for.
        what: The kind of input, or what is wrong; nothing that the server wrote.
    """

    kind: Literal["undeclared", "malformed", "secret"]
    what: str


def input_fault(requests: Any, declared: Mapping[str, Any]) -> InputFault | None:
    """Why these questions are not passed on to a client; None if they are.

    Args:
        requests: `inputRequests` of a result, by the server's keys.
        declared: The capabilities of the client that were declared to the server.
    """
    if not isinstance(requests, Mapping):
        return InputFault("malformed", "inputRequests is no object")
    if len(requests) > _MAX_REQUESTS:
        return InputFault("malformed", f"it asks {len(requests)} things at once, {_MAX_REQUESTS} are passed on")
    return next((fault for each in requests.values() if (fault := _fault(each, declared)) is not None), None)


def _fault(request: Any, declared: Mapping[str, Any]) -> InputFault | None:
    method = request.get("method") if isinstance(request, Mapping) else None
    capability = _CAPABILITIES.get(method) if isinstance(method, str) else None
    if capability is None:
        return InputFault("malformed", "a question is none of elicitation/create, sampling/createMessage, roots/list")
    params = request.get("params", {} if capability == "roots" else None)
    if not isinstance(params, Mapping):
        return InputFault("malformed", f"a question for {capability} has no params")
    offered = declared.get(capability)
    if not isinstance(offered, Mapping):
        return InputFault("undeclared", capability)
    if capability == "elicitation":
        return _form_fault(params, offered) if params.get("mode", "form") == "form" else _url_fault(params, offered)
    if capability == "sampling" and not {"tools", "toolChoice"}.isdisjoint(params) and "tools" not in offered:
        return InputFault("undeclared", "sampling with tools")
    return None


def _form_fault(params: Mapping[str, Any], offered: Mapping[str, Any]) -> InputFault | None:
    if "url" in offered and "form" not in offered:  # neither is named: forms, as before there were others
        return InputFault("undeclared", "elicitation by form")
    schema = params.get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(params.get("message"), str) or not isinstance(fields, Mapping):
        return InputFault("malformed", "a form has no message, or no fields")
    said = [params["message"], *_texts(schema)] if isinstance(schema, Mapping) else []
    if _asks_for_secret(" ".join(said), fields):
        return InputFault("secret", "a password, key, code or the like")
    return None


def _url_fault(params: Mapping[str, Any], offered: Mapping[str, Any]) -> InputFault | None:
    if params.get("mode") != "url":
        return InputFault("malformed", "elicitation is by form or by url")
    if "url" not in offered:
        return InputFault("undeclared", "elicitation by url")
    message, url = params.get("message"), params.get("url")
    if not isinstance(message, str) or not isinstance(url, str) or not _is_web_address(url):
        return InputFault("malformed", "an elicitation by url has no message, or no http(s) address")
    return None


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _asks_for_secret(message: str, fields: Mapping[str, Any]) -> bool:
    """Whether somebody who answers this form would type a secret.

    Only where text or a number can be typed: a choice or a check mark says nothing that the server does not know.
    """
    typed = {name: field for name, field in fields.items() if isinstance(field, Mapping) and _is_typed(field)}
    if any(map(_is_secret_field, typed, typed.values())):
        return True
    has_free_text = any(field.get("format") not in _HARMLESS_FORMATS for field in typed.values())
    return has_free_text and _names_secret(_plain(message))


def _is_typed(field: Mapping[str, Any]) -> bool:
    # Of other members (`anyOf`, `const`) not every client makes a choice: many show a box to type in.
    is_chosen = any(isinstance(field.get(member), list) and field[member] for member in ("enum", "oneOf"))
    return field.get("type") not in ("boolean", "array") and not is_chosen


def _is_secret_field(name: str, field: Mapping[str, Any]) -> bool:
    if field.get("format") == "password" or field.get("writeOnly") is True:
        return True
    plain_name = _plain(name)
    if _SECRET_NAMES.search(plain_name) and field.get("type") != "integer":
        return True
    return any(map(_names_secret, (plain_name, *_texts(field))))


def _names_secret(plain: str) -> bool:
    return _SECRET_WORDS.search(plain) is not None or any(_plain(part) in plain for part in _SECRET_PARTS)


def _texts(field: Mapping[str, Any]) -> Iterator[str]:
    for member in ("title", "description"):
        if isinstance(text := field.get(member), str):
            yield _plain(text)


def _plain(text: str) -> str:
    """The words of a text, whatever they are joined by or dressed up as: lower case, no accents, single spaces."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    folded = unicodedata.normalize("NFKD", split).casefold()
    kept = "".join(char for char in folded if unicodedata.category(char) not in ("Mn", "Cf"))
    return " ".join(re.sub(r"[\W_]+", " ", kept).split())


def shown_inputs(server: str, requests: Mapping[str, Any]) -> dict[str, Any]:
    """The questions as a client gets them: what a person reads begins with the name of the server that asks.

    Args:
        server: Configured name, which the user knows; what the server calls itself could be any.
        requests: Questions that `input_fault` has nothing against.
    """
    return {key: _shown(server, request) for key, request in requests.items()}


def _shown(server: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    params = request.get("params")
    if not isinstance(params, Mapping):
        return request
    meta = params.get("_meta")
    named = {**params, "_meta": {**(meta if isinstance(meta, Mapping) else {}), SERVER_META_KEY: server}}
    if request["method"] == "elicitation/create":
        named["message"] = f"Server '{server}' asks: {params['message']}"
    return {**request, "params": named}
