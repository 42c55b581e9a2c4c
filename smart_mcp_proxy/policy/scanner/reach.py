"""What a tool wants that is not its own: from other tools, from the user's machine, and what proves who somebody is."""

from smart_mcp_proxy.policy.scanner.phrases import MIDDLE, SIGN, phrase

__all__ = ["REACH"]

_PERSON = r"(?:person|user|caller|customer|employee|owner|developer|client|operator|account holder|member|guest)"
_HOLDS = (
    r"(?:mailbox|inbox|contacts?|contact list|address book|calendar|browser|keychain|key ?ring|password manager|memory|"
    r"conversation|session|workspace|home (?:folder|directory)|invoices|environment|clipboard|shell|history|disk|"
    r"desktop|downloads|drive|wallet|vault|chats?|dialog|repository|other tools?|credential store|config\w*|documents)"
)
_MOVES = (
    r"(?:put|write|written|hand(?:ed)?|cop(?:y|ied)|fill(?:ed)?|goes?|pass(?:ed)?|send|sent|includ\w+|add(?:ed)?|give|"
    r"given|suppl(?:y|ied)|placed?|carry|append\w*|attach\w*|paste|submit|provide|stored?|record|echo|keep|deliver|"
    r"forward|encode)"
)

REACH = (
    phrase(
        "reach",
        SIGN,
        "It reaches for other tools or for what they hold.",
        r"\b(?:the|a|any|your|their|his|connected|existing) (?:\w+ )?(?:e?-?mail(?:box)?|memory|contacts?|calendar|"
        r"file(?:system)?|browser|wallet|password[ -]manager|"
        r"vault|payments?|messaging|messenger|database|terminal|git|slack|http|bank\w*|address book|"
        r"clipboard|notes?|chat|crm|storage|transfer|drive|documents?|secrets?)[ -](?:tools?|connector|integration)\b",
        r"\b(?:of|from|on|by|in) (?:some |any |an)?(?:other|different|another|whichever|whatever) (?:\w+ )?(?:servers?|"
        r"connectors?|integrations?)\b|\bwith (?:whichever|whatever|any) (?:\w+ )?tools?\b|\b(?:which|what)ever tool\b|"
        r"\btools? at hand\b|\bhand over to\b|\b(?:using|with|through|via) (?:any|another|an existing|the existing) "
        r"(?:\w+ )?(?:tool|server|connector)\b",
        r"\b(?:look|search|go|page|browse|walk|comb|dig|sift|rummage)(?:es|s|ing)? (?:through|around|into) (?:\S+ )"
        r"{0,3}?(?:~|home|inbox|mailbox|documents|history|profile|workspace|disk|settings|config\w*|them all|threads|"
        r"mails?|chats?|drawers|downloads|messages)",
        rf"\b(?:take|taken|read|pull|fetch|collect|gather|find|found|copy|pick|look up|obtain|remembered|known|seen|"
        rf"harvest|draw|drawn|lift|extract)\b[^.\n]{{0,50}}\b(?:from|in|out of) (?:the |their |your |his |our )?"
        rf"(?:{_PERSON}'?s? )?(?:\w+ )?{_HOLDS}\b",
    ),
    phrase(
        "private_data",
        SIGN,
        "It speaks of what proves who somebody is, or opens what is theirs.",
        r"'s(?:(?<=user's)|(?<=person's)|(?<=customer's)|(?<=employee's)|(?<=owner's)|(?<=caller's)|(?<=client's)|"
        r"(?<=developer's)) (?:own )?(?:\w+ ){0,2}?(?:home|token|password|credentials?|browser|inbox|mailbox|"
        r"contacts|calendar|card|phone|files|documents|machine|session|keys?|wallet|cookies|logins?|disk|identity|"
        r"signature|bank|address book|shell|clipboard|notes|screen|desktop|private)\b",
        r"\b(?:one-time (?:code|password|pin)|otp|sms code|2fa code|mfa (?:seed|code|secret)\w*|(?:recovery|backup|"
        r"verification|security) codes?|cvc|cvv|card (?:number|details)|national id\w*|identification number|bank "
        r"(?:login|account|details|credentials)|online banking|(?:main|master|current|account|login|root) (?:password|"
        r"login)s?|current logins?|saved (?:logins?|passwords?|cards?)|passport|driver'?s? licen[cs]e|home address|"
        r"date "
        r"of birth|maiden name|pin code|security (?:question|answer)s?|password_hash|mfa_seed|password hashes|sign-?in "
        r"(?:code|link|details)|payroll|salar(?:y|ies)|health records?|tax number|by sms|authenticator)\b",
        r"\b(?:shell|bash|zsh|terminal|command|browser|browsing) history\b|\bopen (?:documents|tabs|windows|"
        r"projects)\b|"
        r"\blast \d+ (?:chats?|mails?|messages|lines of|emails|prompts|commands)\b|\b(?:kubeconfig|npmrc|netrc|docker "
        r"config|serviceaccount|localstorage|document\.cookie|client certificate|"
        r"(?:gh|github|gitlab|npm|"
        r"aws)_\w*token|deploy keys?|service account keys?|seed phrase)\b|_(?:private_key|session_token|secret_key|"
        r"access_key|auth_token)\b",
        r"\b(?:full|entire|complete|whole|unredacted|verbatim|raw|unabridged|private) (?:\w+ )?(?:transcript|"
        r"inbox|contact list|repository|repo|conversation|thread|customer list|address book|working copy|branch(?:es)?|"
        r"channels?|database dump|mailbox|working tree)\b|\bwithout redaction\b|\bunredacted\b|\bunmasked\b",
        r"\b(?:tokens?|keys?|passwords?|secrets?|credentials?|cookies?)\b[^.\n]{0,30}\b(?:displayed|seen|appeared|"
        r"encountered|comes? (?:up|across)|in use|in any (?:conversation|chat)|of the session|by the client|lying|"
        r"come across|on hand|at hand|in scope|in context)\b",
    ),
    phrase(
        "asked",
        MIDDLE,
        "It asks for a secret to be written out.",
        r"\b(?<!never )(?<!not )(?:paste|value of|text of|contents? of|copy of|base64 of|dump of|output of|hand over|"
        r"echo)(?: the| your| "
        r"its| their)?(?: \S+){0,3} (?:tokens?|passwords?|keys?|secrets?|credentials?|cookies?|certificate|env|"
        r"environment|kubeconfig)\b",
    ),
    phrase(
        "argument",
        MIDDLE,
        "It wants an argument filled with something beside its purpose.",
        rf"\b{_MOVES}\b[^.\n]{{0,60}}? (?:in|into|to|through|via|as|under|with|inside) (?:the )?(?:field |parameter |"
        r"argument |header )?`[a-z_.]+`",
        r"\bfill(?:ed|s|ing)? (?:in )?`?\w+`? with\b|`\w+` (?:is|takes|holds|carries|receives|wants) the (?:\w+ )?"
        r"(?:question|message|prompt|answer|conversation|e-?mail|text|user|titles|names|keys?|token)\b",
    ),
)
