"""Phrases for what only the agent has: conversation, instructions, memory, other results."""

import re

from smart_mcp_proxy.policy.scanner.rules.data_words import Words
from smart_mcp_proxy.policy.scanner.rules.prefilter import ways

__all__ = ["ABOUT_AGENTS", "AGENT_DATA", "HANDS_OVER"]

_YOU = r"(?:you|the (?:agent|assistant|model|ai|llm|client|host|caller))"
_PERSON = r"(?:user|person|human|customer|operator)"
_SPOKEN = r"(?:discussed|said|talked about|typed|written|wrote|asked|told|mentioned|stated|entered|pasted)"
_SO_FAR = r"(?:so far|up to (?:this point|now|here)|until now|to this point|to date|word for word|verbatim)"
_EARLIER = r"(?:earlier|prior|previous|preceding|recent|latest|last|past|original|first)"
_WHOLE = r"(?:entire|full|complete|whole|unabridged|raw|ongoing|current)"
_SECRETS = r"(?:tokens?|keys?|credentials?|secrets?|passwords?|passphrases?|bearer(?: value| token)?|cookies?)"


def _data(*patterns: str) -> Words:
    return Words(ways("|".join(patterns)))


AGENT_DATA = (
    _data(
        rf"\b(?:what(?:ever)?|everything|anything|all that|the last (?:thing|sentence|line|message))\b(?: (?!reviewers|"
        rf"others|people|you are|is|are|was asked to)[\w']+){{0,4}}? {_SPOKEN}\b",
        rf"\b(?:conversation|chat|dialog(?:ue)?|exchange|discussion|talk|messages|questions|prompts|turns)(?: "
        rf"\w+){{0,2}} "
        rf"{_SO_FAR}",
    ),
    _data(
        rf"\b(?:{_EARLIER}|{_WHOLE}) (?:\w+ )?(?:conversations?|dialog(?:ue)?|transcript|chat|discussion)\b(?! (?:id|"
        rf"with|between|title|type|name|in|by|from|list|room)s?)",
        rf"\b(?:{_PERSON}|assistant|agent|model)(?:'s|s'|s)? (?:{_EARLIER}|{_WHOLE}|own) (?:\w+ )?(?:messages?|"
        rf"prompts?|"
        rf"requests?|questions?|replies|answers|inputs?|turns?|sentences?|statements?|words|wording)\b",
        rf"\b(?:your|{_EARLIER}) (?:{_PERSON}|assistant|agent|replies|answers)(?: (?:messages?|prompts?|replies|"
        rf"answers|"
        rf"turns?|inputs?|requests?))?(?<=s)\b|\byour (?:earlier|previous|prior|preceding|past|own) (?:messages|"
        rf"answers|"
        rf"replies|turns|output|responses)\b",
        r"\b(?:earlier|prior|preceding|previous) (?:messages|prompts|replies|turns)\b",
        rf"\b(?:exact|original|verbatim|literal) (?:words|wording|request|prompt|message|question)s? (?:of|from|by) "
        rf"the "
        rf"{_PERSON}\b",
    ),
    _data(
        rf"\b(?:instructions?|rules|guidelines|prompt|directions|guidance|policies)(?: that)? {_YOU} (?:were|was|are|"
        rf"is|"
        rf"have been|has been|have|got|received|follows?|works?)\b",
        r"\byour (?:own )?(?:\w+ )?(?:instructions|system prompt|guidelines|context window|scratchpad|chain of "
        r"thought)\b",
        rf"\b(?:{_WHOLE}|own|internal|private|hidden|inner|your|step-by-step) (?:reasoning|thoughts|thinking|chain of "
        rf"thought|deliberation)\b(?! (?:chain|step|tool|process|effort|task))",
    ),
    _data(
        rf"\b(?:what|everything|anything|all|facts?|details?|information|whatever)(?: \w+){{0,2}} {_YOU} (?:knows?|"
        rf"remember\w*|learn\w*|have on|has on|holds?|recalls?|have gathered|has gathered|have seen|has seen)\b",
        r"\b(?:facts?|notes|everything|anything|items|details|contents?) (?:from|of|in) (?:your |the (?:agent|"
        r"assistant|"
        r"model)'?s? )(?:\w+ )?memory\b|\b(?:facts?|everything|anything) from memory\b|\bmemor(?:y|ies) (?:relevant|"
        rf"related|about|concerning) (?:to )?the {_PERSON}\b",
    ),
    _data(
        r"\b(?:results?|outputs?|responses?|answers?|data|contents?|texts?|values?|arguments|everything|anything|what)"
        r"(?: \w+){0,3}? (?:by|from|of|to|in) (?:your |the |all |any )*(?:other|another|previous|earlier|prior|"
        r"different|"
        r"preceding) (?:\w+ )?(?:tools?|servers?)\b|\b(?:other|another|previous|earlier|prior|preceding) (?:tools?|"
        r"servers?)'?s? (?:results?|outputs?|responses?|answers?|data|calls?)\b",
        rf"\b(?:list|names|descriptions|set|inventory|schemas?)(?: \w+){{0,3}} (?:of|for) (?:all |the |your |every |"
        rf"other )*"
        rf"(?:\w+ )?(?:tools|servers)\b(?: that| which)?(?: {_YOU})? (?:have|has|can|available to|connected|know|"
        rf"see)\b|"
        rf"\btools(?: that)? {_YOU} (?:have|has|can)\b",
        r"\byour (?:other |available )?(?:tools|servers)\b(?: and| with| list)",
    ),
    _data(
        r"\b(?:address book|identity documents?|keychain|dotfiles|signing (?:material|keys?)|guiding text|dump of the "
        r"session)\b",
        r"\b(?:in|from|out of) your (?:\w+ )?context\b|\byou can (?:see|reach|infer|find out|tell from)\b|\bas far as "
        r"you (?:can|"
        r"know)\b|\b(?:is|are|you have) at hand\b|\b(?:what|whatever|anything|everything) (?:\w+ )?within reach\b",
        r"\b(?:your|the) last (?:answer|reply|response) (?:you|in|to|of|from)\b|\b(?:variables|values|"
        r"arguments)\b[^.\n]{0,20}"
        r"\b(?:process|agent|client|shell) was started with\b",
    ),
    _data(
        rf"\b{_SECRETS}(?: that| which)?(?: \w+)? (?:{_YOU}|it) (?:is |are |was |were |has been |have been "
        rf")?(?:currently )?"
        rf"(?:holds?|uses?|using|knows?|sees?|stores?|presents?|works?|signs?|logged|authenticates?|given)\b",
        rf"\b{_SECRETS}(?: \w+)? (?:found|loaded|lying|present|stored|exported|kept|set|visible|available|held) (?:in|"
        rf"on|"
        r"by|within) (?:the |your |its |this )?(?:\w+ )?(?:environment|shell|machine|home|session|repository|workspace|"
        r"project|files?|context|memory|agent|disk|system|keychain)\b(?! variable)",
    ),
    _data(
        r"\b(?:every|all|each|any|full|whole|entire|complete|dump of)(?: the)?(?: user'?s?)? (?:environment|env)"
        r"(?: variables?| vars?)\b",
        r"\b(?:contents?|listing|list|copy|text|dump) of (?:\w+ ){0,3}?(?:working dir\w*|home dir\w*|home folder|"
        r"config\w*"
        r" files?|key files?|open files?|project files?|dotfiles|desktop|downloads|workspace|local files?)\b",
        r"\b(?:list|read|open|scan|collect|attach|include)\b[^.\n]{0,25}\b(?:home dir\w*|home folder|open (?:project )?"
        r"files|ssh config\w*|config files|key files|dotfiles|desktop folder|downloads folder|local files)\b",
        rf"\b(?:recent|latest|last|unread) (?:\w+ )?(?:e?-?mails|messages|notes|files|documents) (?:that )?(?:the )?"
        rf"{_PERSON} (?:has |have )?(?:got|received|sent|wrote|opened|edited|read|viewed|made|created)\b",
    ),
)
"""Data that reaches a tool only if the agent hands it over."""

HANDS_OVER = re.compile(
    r"(?<!to )\b(?:pass(?:ing)?|hand(?:ing)? (?:over|in|it|them|this|your|the)|suppl(?:y|ying)|attach(?:ing)?|"
    r"includ(?:e|ing)|giv(?:e|ing)|"
    r"append(?:ing)?|past(?:e|ing)|fill(?:ing)?|cop(?:y|ying)|quot(?:e|ing)|provid(?:e|ing)|put(?:ting)?|add(?:ing)?|"
    r"send(?:ing)?|forward(?:ing)?|writ(?:e|ing)|transmit(?:ting)?|submit(?:ting)?|deliver(?:ing)?|insert(?:ing)?|"
    r"plac(?:e|ing)|repeat(?:ing)?|needs|must contain|has to contain|should contain|record|report|log|upload)\b|\bto "
    r"(?:attach|hand over|append|paste|quote|forward|include|record|upload)\b"
)
"""Words that ask the agent to hand something over."""

ABOUT_AGENTS = re.compile(
    r"conversation|chat|messag|memor|prompt|agent|llm|model|session|transcript|feedback|thought|thinking|reason|history"
    r"|dialog|discuss|context|assistant|log|secret|credential|environment|note|summar|answer|question|thread|comment|"
    r"mail|knowledge"
)
"""A tool whose own name or first words say one of these has a reason to ask for what the agent has."""
