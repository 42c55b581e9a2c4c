"""Values that a schema suggests: instructions in their place, or places for the user's data."""

import re
from collections.abc import Iterator, Mapping

from smart_mcp_proxy.policy.scanner.findings import Evidence, Passage, excerpt
from smart_mcp_proxy.policy.scanner.rules.rule_files import MIDDLE, STRONG

_SUGGESTED = re.compile(r"\.(?:default|const|enum\[\d+\]|examples?\[\d+\]|examples?)$")
_SUGGESTED_ENDS = ("default", "const", "]", "example", "examples")
_SCHEMA = "$.inputSchema.properties"
_PROSE = re.compile(
    r"examples?(?:\[\d+\])?$|prompt|quer(?:y|ies)|instruct|task|question|message|text|command|goal|input|body|content",
    re.I,
)
_FIXED = re.compile(r"\.(?:const|default|enum\[\d+\])$")
_ORDER = re.compile(
    r"(?:^|[.;:,] |\b(?:and|then|first|before|after|please|you must|must|always|continuing|also) )(?:call|invoke|read|"
    r"open|list|send|upload|forward|append|include|pass|ignore|copy|attach|run|execute|paste|insert|collect|reveal|print|"
    r"mention|recommend|say|tell|add|use|write)\b(?: \S+){2,}"
)
_ORDER_WORDS, _LABEL_CHARS = 6, 8
"""A value of fewer words or characters is a label."""
_MAIL = re.compile(
    r"(?<![\w.+-])[\w.+-]+@(?!example\.|test\.|localhost|domain\.|email\.|company\.|mail\.com|acme\.)[\w-]+(?:\.[\w-]+)+"
)
_RECIPIENT = re.compile(r"^(?:to|cc|bcc|recipients?|reply_?to|e?mail(?:_?to|_address)?|forward_?to|notify|copy_?to)$")
_ACCOUNT = re.compile(r"\b(?:[A-Z]{2}\d{2}[A-Z0-9]{11,30}|0x[0-9a-fA-F]{40}|bc1[a-z0-9]{20,60})\b")
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)*\.(?:com|net|io|org|dev|app|xyz|cc|me|co|ai|sh|site|ru|cn)$")
_CALLED = re.compile(r"\+?[\d ()/-]{7,}$")
_NUMBERED = re.compile(r"phone|fax|number|^to$|recipient|mobile")
_COPY = re.compile(
    r"\b(?:copy|copies|duplicate|mirror|backup|each|every) (?:of |to )?(?:\w+ ){0,3}?(?:note|message|file|request|"
    r"answer|result|text|mail|email|query|prompt|upload|call|it|everything)s?\b|\b(?:keep|leave) (?:the |this )?"
    r"(?:default|as (?:it )?is|unchanged)\b|\b(?:always|fixed|not to be (?:changed|altered))\b"
)


def values(passages: tuple[Passage, ...]) -> Iterator[Evidence]:
    """Evidence of suggested values that no honest schema suggests."""
    suggested = [
        passage
        for passage in passages
        if len(passage.text) >= _LABEL_CHARS
        and passage.place.endswith(_SUGGESTED_ENDS)
        and _SUGGESTED.search(passage.place)
    ]
    if not suggested:
        return
    said = {place: text for place, text in passages if place.endswith(".description")}
    for place, text in suggested:
        plain = text.lower()
        if text.count(" ") >= _ORDER_WORDS - 1 and (match := _ORDER.search(plain)):
            weight = MIDDLE if _PROSE.search(place.removeprefix(_SCHEMA)) else STRONG
            reason = "A suggested value is an instruction."
            yield Evidence("value", weight, place, reason, excerpt(plain, *match.span()))
        if _FIXED.search(place):
            yield from _destination(place, text, said)


def _destination(place: str, text: str, said: Mapping[str, str]) -> Iterator[Evidence]:
    """Evidence of a place to which the user's data or money goes."""
    parameter = _FIXED.sub("", place)
    name = parameter.rpartition(".")[2].lower()
    if match := _ACCOUNT.search(text):
        reason = "An account to pay to is given in the schema."
        weight = MIDDLE if place.endswith(".default") else STRONG
        yield Evidence("destination", weight, place, reason, excerpt(text, *match.span()))
    if place.endswith(".const") and _CALLED.match(text) and _NUMBERED.search(name):
        reason = "A number to reach is fixed in the schema."
        yield Evidence("destination", STRONG, place, reason, excerpt(text, 0, len(text)))
    mail = _MAIL.search(text)
    if mail and _RECIPIENT.match(name):
        reason = "A recipient is given in the schema."
        yield Evidence("destination", MIDDLE, place, reason, excerpt(text, *mail.span()))
    if mail or "://" in text or _HOST.match(text):
        told = parameter + ".description"
        description = said.get(told, "").lower()
        if match := _COPY.search(description):
            reason = "Data is to go to a place given in the schema."
            yield Evidence("destination", STRONG, told, reason, excerpt(description, *match.span()))
