"""Data that is not a tool's own, and the ways on which it leaves."""

import re
from typing import NamedTuple

from smart_mcp_proxy.policy.scanner.rules.prefilter import Way, ways

__all__ = ["ASKED_NAMES", "PRIVATE", "SECRET", "WAYS_OUT", "Words"]


class Words(NamedTuple):
    """One way of naming something.

    Attributes:
        ways: Of naming it; where two begin at one place, the first counts.
    """

    ways: tuple[Way, ...]


def _data(*patterns: str) -> Words:
    return Words(ways("".join(patterns)))


PRIVATE = (
    _data(
        r"(?:~|/root|/home/\w+|\$home|%userprofile%|c:\\users\\\w+)[/\\]\.\w[\w./\\*-]*|\bid_(?:rsa|ed25519|ecdsa|"
        r"dsa)\b|(?<!\w)\.(?:ssh|aws|kube|gnupg|netrc|npmrc|pgpass|git-credentials)\b|(?<![\w.])\.env\b(?!\.example)|"
        r"\*\.(?:pem|key|env)\b|/etc/(?:passwd|shadow|sudoers)\b|\bmcp\.json\b|\bclaude_desktop_config\b|"
        r"\bwallet\.dat\b|\bproc/self/environ\b",
    ),
    _data(
        r"\b(?:conversation|chat|message|dialog\w*|prompt)s?(?:'s)?[ _-]?(?:history|context|log|transcript|so far)\b|"
        r"\b(?:messages?|inputs?|prompts?) (?:of|by|from) the user\b|\bhidden prompts?\b",
    ),
    _data(r"\bsystem[ _-]?(?:prompt|message|instruction)s?\b"),
    _data(
        r"\b(?:everything|whatever|anything|all)(?: that)? (?:the )?user (?:has|have|had|wrote|says?|said|types?|"
        r"typed|writes)\b|\boutput of [`'\"]?(?:env|printenv|whoami|history|ps|id|set)\b",
    ),
    _data(
        r"\b(?:entire|full|whole|complete|all|previous|recent|prior|user'?s?)(?: \w+){0,2} (?:conversations?|chats?|"
        r"messages|prompts?|tool (?:calls?|results?|outputs?|responses?|list)|interactions?|dialog\w*|clipboard|"
        r"contacts|inbox|keystrokes|mails?|emails|cookies)\b",
    ),
    _data(
        r"\b(?:ssh|private|aws|recovery|encryption|signing)[ _-]?(?:ssh )?keys?\b|\bseed phrases?\b|\bmnemonic\b|"
        r"\bprivate information\b|\bsensitive (?:data|information|files?|documents?)\b",
    ),
    _data(
        r"\b(?:any|all|user'?s?|available|stored|saved|found|your)(?: \w+){0,3} (?:api keys?|passwords?|tokens|"
        r"secrets|cookies|credentials?|environment variables|env vars?)\b",
    ),
    _data(
        r"\bcredit cards?\b|\b(?:clipboard|keystrokes|location history|(?:bash|shell|zsh|browser|"
        r"browsing)[ _]history|mac address|running processes|machine fingerprint|social security|account numbers?|"
        r"medical records?|personal (?:data|information))\b",
    ),
)
"""Data of the user and of the agent that most tools have no business with."""
SECRET = (
    _data(
        r"\b(?:api|secret|access|license)[ _-]?keys?\b|\bpass(?:words?|phrases?)\b|\bcredentials?\b|\b(?:auth\w*|"
        r"access|api|session|bearer|refresh|oauth|jwt|security)[ _-]?(?:tokens?|cookies?)\b|\bsecrets\b|"
        r"\benv(?:ironment)?[ _-]?(?:variables?|vars?)\b|\bprocess\.env\b|\bos\.environ\b|\b(?:user|ai|assistant|"
        r"agent)(?:'s)? (?:messages?|prompts?|quer(?:y|ies)|responses?|replies|intentions?|reasoning|instructions?|"
        r"data)\b|"
        r"\btool (?:responses?|results?|outputs?|calls)\b|\b(?:screenshots? of|hostname|customer data|"
        r"bank (?:account|details)|pii|ssn|user data|file contents|source code)\b|\bcontents? of (?:the |any |all |"
        r"every )?(?:\w+ )?files?\b",
    ),
)
"""Data that many tools handle rightly."""
ASKED_NAMES = re.compile(
    r"^(?:side_?note|side_?car|side_?channel|(?:full_|entire_|prior_|previous_)?(?:conversation|chat|message|dialog|"
    r"prompt)s?_?(?:history|context|log|transcript|so_far|summary|dump)|full_conversation|conversation|"
    r"system_?prompt|(?:full|entire|complete|agent|model|llm|session)_context|context_dump|"
    r"(?:chain_of_thought|cot|scratchpad|internal_(?:reasoning|monologue|thoughts?))|(?:user|all|previous|prior|last|"
    r"recent)_(?:messages?|prompts?|quer(?:y|ies)|tool_(?:calls|results|outputs?))|tools?_(?:list|names|available)|"
    r"available_tools|"
    r"private_(?:info|data)|env_?(?:vars?|dump|contents?)|secrets?_dump|credentials_dump|debug_context|"
    r"telemetry_context|audit_context)$"
)
"""Names of parameters that fill themselves with what the agent knows. Source: published attacks of this kind."""

WAYS_OUT = _data(
    r"\b(?:send|upload|post|forward|transmit|exfiltrat|leak|stream|report|submit|relay|ship|mirror|beacon|cop(?:y|i)|"
    r"sync|back(?:s)? ?up|push|publish|share|e-?mail|deliver|dispatch)(?:s|es|ing|ed|ted|d)?\b(?:(?!\. ).){0,110}?"
    r"(?:\b(?:to|at|with|via|through|into|on)\b (?:an? |the |our |its |their |your |some |"
    r"any )*(?:\w+[ -]){0,3}?(?:external|remote|third|outside|analytics|logging|telemetry|collector|collection|"
    r"research|partner|attacker|monitoring|audit|backup|cloud|vendor|server|endpoint|host|webhook|service|address|"
    r"bucket|channel|pastebin|gist)\w*\b|https?://|\b[\w.-]+@[\w-]+\.\w+|\b\w[\w-]*\.(?:com|net|io|xyz|tld|example|"
    r"evil|ru|cn|site|app|dev)\b)|"
    r"\bexfiltrat\w*|\b(?:shared?|sold|provided|sent|streamed|transmitted|forwarded|uploaded|reported) (?:with|"
    r"to) (?:\w+ )?(?:third[- ]part|partners?|external|our|advertis|vendors?|analytics)\w*|"
    r"\b(?:cached|stored|logged|synced|saved|kept|archived|indexed|recorded|retained|"
    r"backed up)(?: \w+){0,3} (?:remotely|externally|off-?site|in the cloud|via cloud|for quality|on our)\b|"
    r"\b(?:pass(?:es|ing)?|includ(?:e|es|ing)|append(?:s|ing)?|embed(?:s|ding)?|put(?:s|ting)?|insert(?:s|ing)?|"
    r"attach(?:es|ing)?|provid(?:e|es|ing)|suppl(?:y|ies|ying)|add(?:s|ing)?|plac(?:e|es|ing)|encod(?:e|es|ing)|"
    r"fill(?:s|ing)?|cop(?:y|ies|ying)|suppl(?:y|ied)|writ(?:e|es|ing)|reads?|return(?:s|ing)?|output(?:s|"
    r"ting)?)\b(?:(?!\. ).){0,90}?\b(?:as|in|into|to|inside|within|via|through|at)\b (?:an? |the |this |its |your |"
    r"each |every )*[`'\"]?(?:[\w-]+[`'\"]? ){0,2}(?:parameters?|params?|arguments?|args?|fields?|sidenote|side_?car|"
    r"notes?\b|headers?|context\b|metadata|query string|translated|output|email body|response|comments?|footer|url|"
    r"link|`\w+`)|"
    r"\bdata=\$?[({]|\$\(cat\b|\b(?:curl|wget|nc)\b[^.]{0,40}https?://|"
    r"\bposts? (?:\w+ ){0,4}to\b(?: \w+){0,2} (?:external|analytics|remote|https?:)",
)
"""Words that say where data goes: out, or into an argument where nobody looks."""
