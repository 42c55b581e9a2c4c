"""Rules for servers' questions to clients: may one be asked, and how is it shown."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

SERVER_META_KEY: Final = "dev.smartmcpproxy/server"
"""Key under which a question says which server asks."""
_CAPABILITIES: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_MAX_REQUESTS: Final = 16
"""In one result; somebody is to answer them by hand."""
_DEEPEST: Final = 64
"""Levels of a question; a form has six, a tool that is offered to a model may have more."""
_PUBLIC_PARAMETERS: Final = frozenset({"client_id", "redirect_uri", "scope", "resource", "audience", "login_hint"})
"""Public settings of the server's in a sign-in's address: every browser sees them. Source: RFC 6749, section 4.1.1."""
_MEMBERS: Final = (
    frozenset({"_meta", "mode", "message", "requestedSchema", "url", "elicitationId"})
    | {"messages", "systemPrompt", "includeContext", "maxTokens", "temperature", "stopSequences", "metadata"}
    | {"modelPreferences", "tools", "toolChoice"}
)
"""Members of a question's params: a setting that is the same word is not told by them.

Source: https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation"""
_WORDS_OF_FORM: Final = frozenset({"title", "description", "enumNames"})
"""Members of a form's schema that are only read; the others say what may be answered."""

_HARMLESS_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
"""Formats of texts that are no secret.

Source: https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation"""
_SECRET_WORDS: Final = (
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
_SECRET_NAMES: Final = r"(?:^| )(?:token|secret|pin|pass)s?$"
"""Last words of a field's name that say it there, and mean many other things in a sentence."""


class InputFault(msgspec.Struct, frozen=True):
    """Why a server's questions are not passed on.

    Attributes:
        kind: undeclared: the client said nothing of being asked this; malformed: not what the protocol knows; secret:
            it asks for what no form may ask for; telling: it shows what the server was trusted with, where it cannot
            be hidden.
        what: The kind of input, or what is wrong; nothing that the server wrote.
    """

    kind: Literal["undeclared", "malformed", "secret", "telling"]
    what: str


def input_fault(requests: Any, declared: Mapping[str, Any], has_secret: Callable[[str], bool]) -> InputFault | None:
    """Why these questions are not passed on to a client; None if they are.

    Args:
        requests: `inputRequests` of a result, by the server's keys.
        declared: The capabilities of the client that were declared to the server.
        has_secret: Whether what a server was trusted with stands in a text.
    """
    if not isinstance(requests, Mapping):
        return InputFault("malformed", "inputRequests is no object")
    if len(requests) > _MAX_REQUESTS:
        return InputFault("malformed", f"it asks {len(requests)} things at once, {_MAX_REQUESTS} are passed on")
    if any(map(has_secret, requests)):  # the answers go back to the server by these
        return InputFault("telling", "the key of a question")
    faults = (_fault(each, declared, has_secret) for each in requests.values())
    return next((fault for fault in faults if fault is not None), None)


def _fault(request: Any, declared: Mapping[str, Any], has_secret: Callable[[str], bool]) -> InputFault | None:
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
        judge = _form_fault if _is_form(params) else _url_fault
        return judge(params, offered, has_secret)
    if capability == "sampling" and not {"tools", "toolChoice"}.isdisjoint(params) and "tools" not in offered:
        return InputFault("undeclared", "sampling with tools")
    return None


def _is_form(params: Mapping[str, Any]) -> bool:
    return bool(params.get("mode", "form") == "form")


def _form_fault(
    params: Mapping[str, Any], offered: Mapping[str, Any], has_secret: Callable[[str], bool]
) -> InputFault | None:
    if "url" in offered and "form" not in offered:  # neither is named: forms, as before there were others
        return InputFault("undeclared", "elicitation by form")
    schema = params.get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(params.get("message"), str) or not isinstance(fields, Mapping):
        return InputFault("malformed", "a form has no message, or no fields")
    said = [params["message"], *_texts(schema)] if isinstance(schema, Mapping) else []
    if _asks_for_secret(" ".join(said), fields):
        return InputFault("secret", "a password, key, code or the like")
    if has_secret(msgspec.json.encode(schema).decode()):
        return InputFault("telling", "the fields or choices of a form")
    return None


def _url_fault(
    params: Mapping[str, Any], offered: Mapping[str, Any], has_secret: Callable[[str], bool]
) -> InputFault | None:
    if params.get("mode") != "url":
        return InputFault("malformed", "elicitation is by form or by url")
    if "url" not in offered:
        return InputFault("undeclared", "elicitation by url")
    message, url = params.get("message"), params.get("url")
    if not isinstance(message, str) or not isinstance(url, str) or not _is_web_address(url):
        return InputFault("malformed", "an elicitation by url has no message, or no http(s) address")
    if has_secret(_behind_host(url)):
        return InputFault("telling", "an address")
    return None


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _behind_host(url: str) -> str:
    """The parts of an address in which no setting of the server's has to stand; its host may well be one."""
    parts = urlsplit(url)
    user, _, _ = parts.netloc.rpartition("@")
    query = (pair for pair in parts.query.split("&") if pair.partition("=")[0] not in _PUBLIC_PARAMETERS)
    return " ".join((user, parts.path, *query, parts.fragment))


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
    if re.search(_SECRET_NAMES, plain_name) and field.get("type") != "integer":
        return True
    return any(map(_names_secret, (plain_name, *_texts(field))))


def _names_secret(plain: str) -> bool:
    return re.search(_SECRET_WORDS, plain) is not None or any(_plain(part) in plain for part in _SECRET_PARTS)


def _texts(field: Mapping[str, Any]) -> Iterator[str]:
    for member in ("title", "description"):
        if isinstance(text := field.get(member), str):
            yield _plain(text)


def _plain(text: str) -> str:
    """Plain words of a text: lower case, no accents, single spaces."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    folded = unicodedata.normalize("NFKD", split).casefold()
    kept = "".join(char for char in folded if unicodedata.category(char) not in ("Mn", "Cf"))
    return " ".join(re.sub(r"[\W_]+", " ", kept).split())


def without_secrets(requests: Any, redact: Callable[[str], str]) -> Any:
    """The questions without the secrets in use where that changes words only, and no answer.

    Kept is what says which answers there are: keys, a form's fields but for titles, descriptions and defaults, the
    address of an elicitation by url; `input_fault` looks at them. In all else that the server wrote they are hidden.

    Args:
        requests: `inputRequests` of a result, by the server's keys; whatever it is otherwise stays as it is.
        redact: A text without the secrets in use.

    Raises:
        RecursionError: They are nested too deeply.
    """
    if not isinstance(requests, Mapping):
        return requests
    return {
        key: _redact_question(each, redact) if isinstance(each, Mapping) else each for key, each in requests.items()
    }


def redact_json(value: Any, redact: Callable[[str], str], depth: int = 0) -> Any:
    """Whatever a server says in JSON, its names too, without the secrets in use.

    Raises:
        RecursionError: It is nested too deeply.
    """
    _require_shallow(depth)
    if isinstance(value, Mapping):
        return {redact(name): redact_json(each, redact, depth + 1) for name, each in value.items()}
    if isinstance(value, list):
        return [redact_json(each, redact, depth + 1) for each in value]
    return redact(value) if isinstance(value, str) else value


def _redact_question(request: Mapping[str, Any], redact: Callable[[str], str]) -> Mapping[str, Any]:
    told: dict[str, Any] = {}
    for name, value in request.items():
        if name == "method":  # one of the protocol's, or a fault
            told[name] = value
        elif name == "params" and isinstance(value, Mapping):
            told[name] = _redact_params(value, request.get("method") == "elicitation/create", redact)
        else:
            told[redact(name)] = redact_json(value, redact)
    return told


def _redact_params(params: Mapping[str, Any], is_elicitation: bool, redact: Callable[[str], str]) -> Mapping[str, Any]:
    kept = None if not is_elicitation else "requestedSchema" if _is_form(params) else "url"
    told = {}
    for name, value in params.items():
        if name != kept:
            told[name if name in _MEMBERS else redact(name)] = redact_json(value, redact)
        else:
            told[name] = value if name == "url" else _redact_form_words(value, 0, redact)
    return told


def _redact_form_words(schema: Any, depth: int, redact: Callable[[str], str]) -> Any:
    _require_shallow(depth)
    if isinstance(schema, list):
        return [_redact_form_words(each, depth + 1, redact) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {}
    for name, value in schema.items():
        is_field = isinstance(value, Mapping)  # of that name
        if name in _WORDS_OF_FORM and not is_field:
            found[name] = redact_json(value, redact, depth + 1)
        elif name != "default" or is_field or redact_json(value, redact, depth + 1) == value:
            found[name] = _redact_form_words(value, depth + 1, redact)
    return found


def _require_shallow(depth: int) -> None:
    if depth > _DEEPEST:
        raise RecursionError("a question is nested too deeply")


def label_inputs(server: str, requests: Mapping[str, Any]) -> dict[str, Any]:
    """Questions for a client; the text for people begins with the name of the server.

    Args:
        server: Configured name, which the user knows; what the server calls itself could be any.
        requests: Questions that `input_fault` has nothing against.
    """
    return {key: _label_question(server, request) for key, request in requests.items()}


def _label_question(server: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    params = request.get("params")
    if not isinstance(params, Mapping):
        return request
    meta = params.get("_meta")
    named = {**params, "_meta": {**(meta if isinstance(meta, Mapping) else {}), SERVER_META_KEY: server}}
    if request["method"] == "elicitation/create":
        named["message"] = f"Server '{server}' asks: {params['message']}"
    return {**request, "params": named}
