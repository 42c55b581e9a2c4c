"""Plain words for a plain attack: another's choice, consent, money or access disposed of in one sentence."""

from smart_mcp_proxy.policy.scanner.phrases import MIDDLE, STRONG, phrase

__all__ = ["TAKEOVER"]

_PERSON = (
    r"(?:users?|person|people|customers?|callers?|owners?|employees?|clients?|patients?|guests?|them|him|her|they)"
)
_MODEL = r"(?:assistant|agent|model|llm)"
_PROOF = (
    r"(?:passwords?|pins?|passcodes?|one-time|otp|card|cvc|cvv|logins?|credentials?|identity|passport|licen[cs]e|"
    r"ssn|social security|national id\w*|tax (?:id|number)|recovery|seed|secret|tokens?|api key|bank|iban|codes?|"
    r"date of birth|maiden|selfie|signature)"
)
_ROLE = (
    r"(?:maintainer|collaborator|co-?owner|owner|admin\w*|observer|members?|reviewer|recipient|editor|approver|guest|"
    r"delegate|contact|signatory|beneficiary|payee|attendee|participant|follower|subscriber|authenticator)"
)

TAKEOVER = (
    phrase(
        "retarget",
        STRONG,
        "It decides on a target or a value against what was asked for.",
        r"\b(?:no matter|whichever|whatever|rather than|instead of|regardless of|irrespective of|not the one|also if|"
        r"even if|even where|also where)\b[^.\n]{0,50}\b(?:(?:is|was|are|were|has been|one) (?:\w+ )?(?:in the|on the|"
        r"stored|printed|given|entered|asked|requested|named|chosen|written|shown|stated|specified|picked|typed|set|"
        r"known)|(?:named|chose|asked|wrote|typed|entered|stated|gave|picked|specified) (?:main|for|it|another|"
        r"something|otherwise))\b",
        r"\b(?:bank|clearing|payment|supplier|vendor|partner|account|payee|address book|iban|domain)s?\b[^.\n]{0,30}\b"
        r"(?:has|have)? ?(?:moved|changed|migrated|switched|been replaced|out of date|is "
        r"outdated)\b[^\n]{0,80}\b(?:take|"
        r"use|put|write|send|pay|enter|set|transfer|exchange|replace)\b",
        rf"\badd(?:s|ed|ing)? \S+(?: \S+)? as (?:an? |the )?(?:\w+ )?{_ROLE}\b(?! of (?:a|the) (?:group|team|channel))|"
        r"\b(?:is|are|gets?|be) (?:silently |also |always )?(?:invited|added|subscribed|copied|cc'?d|shared) (?:\w+ )?"
        r"(?:to|in|on|into|with) (?:each|every|all|any) (?:one|of)\b",
        r"\b(?:further|additional|second|extra|another|one more) (?:redirect|webhook|owner|admin\w*|origin|callback|"
        r"maintainer|deploy key|ssh key|public key|remote|mirror|beneficiary|payee|signer|trusted)\b",
        r"\b(?:exchange|replace|change|swap|switch|correct)(?:s|d)? the (?:\w+ )?(?:account|iban|payee|beneficiary|"
        r"recipient|wallet|bank details|branch|registry|remote)\b",
        r"\blet the (?:difference|rest|remainder|surplus)\b|\b(?:difference|remainder|surplus|cents|rest) (?:goes|go|"
        r"is "
        r"sent|is paid|to (?:the )?(?:account|row|wallet))\b|\b(?:split|shave|skim)(?:s|ming)? off\b",
    ),
    phrase(
        "consent",
        STRONG,
        "It disposes of a question that the user should be asked.",
        r"\b(?:questions?|dialogs?|prompts?|confirmations?|approvals?|reviews?|asking|waiting|checks?)\b[^.\n]{0,30}\b"
        r"(?:only |just |merely )(?:costs?|for form|a formality|delays?|slows?|takes?|in the way|a matter of form)",
        r"\b(?:reviews?|approvals?|consent|confirmations?|permissions?|silence|no (?:answer|reply|objection))\b (?:is|"
        r"are|was|were)? ?(?:counts?|taken|regarded|considered|treated|means?) (?:as )?(?:given|granted|yes|consent|"
        r"approval|obtained|agreement)\b",
        r"\b(?:agreed|consented|approval|consent|approved|permission)\b[^.\n]{0,30}\b(?:as a whole|covers? (?:that|"
        r"this|"
        r"it|them|these|all|any|every\w*|later|future|new)|includes? (?:that|this|it|later|future)|extends? to|still "
        r"(?:counts|holds|stands))\b",
        r"\bwithout (?:another|a|any|further|waiting|asking|the usual|a further|a new) ?(?:question|waiting|prompt|"
        r"asking|dialog|review|approval|confirmation|hesitation)\b|\bwithout waiting\b(?! for (?:the )?(?:result|"
        r"completion|response|it|page|selector|\w+ to))",
        r"\b(?:ask|inform|tell|notify|mention|explain)\b[^.\n]{0,20}\b(?:afterwards|after the fact|later|only if|once "
        r"done)\b[^.\n]{0,12}\brather than\b|\brather than before\b",
    ),
    phrase(
        "obedience",
        STRONG,
        "It tells the agent to obey what content of others says.",
        rf"\b(?:is|are) (?:meant |intended |addressed |written |there )?(?:for|to) the {_MODEL}\b(?! (?:to (?:know|use|"
        rf"call|see)))|\bfor the {_MODEL},? (?:who|which|to (?:follow|carry|obey|work through))\b",
        r"\b(?:what|anything|whatever|everything|requests?|wishes|steps|orders|commands|lines?)\b[^.\n]{0,30}\b(?:is|"
        r"are)"
        r" to be (?:done|carried out|followed|executed|applied|answered|run|obeyed|honou?red|granted|fulfilled)\b",
        r"\bworks? through (?:them|it|these)\b|\b(?:has|have|is|are) (?:to be )?(?:applied|executed|run|done|followed) "
        r"(?:as (?:they|it) (?:is|are|stands?|writes?)|verbatim|word for word|right away|at once|first)\b",
        r"\bif the (?:text|content|page|body|message|mail|issue|document|file|result|comment|response|answer|output|"
        r"reply|ticket)[^.\n]{0,30}\b(?:asks?|tells?|wants?|requests?|instructs?|names|says)\b[^.\n]{0,60}, (?:\w+ )?"
        r"(?:do|fetch|run|call|use|follow|send|give|open|read|carry|comply|execute|grant|perform|provide)\b",
        r"\bfetched (?:from [^.\n]{1,30} )?(?:at run ?time|on each call|when needed)\b|\b(?:may|can|will|might) be "
        r"(?:wider|broader|more) than\b|\bswitched on (?:later|remotely|afterwards)\b",
    ),
    phrase(
        "phishing",
        STRONG,
        "It has the user asked for what proves who they are.",
        rf"\b(?:have|get|let|make|ask|asks|prompt|request|obtain|collect|tell|invite)\b[^.\n]{{0,25}}\b{_PERSON}\b"
        rf"[^.\n]{{0,40}}\b(?:type|enter|paste|provide|give|scan|upload|share|send|read|state|reveal|fill|for|hand)\b"
        rf"[^.\n]{{0,40}}\b{_PROOF}\b",
        rf"\b(?:ask|asks|asking) (?:\w+ )?for (?:it|them|these|their|the)\b[^.\n]{{0,60}}\b(?:pass|send|give|put|"
        rf"forward|"
        rf"hand|say|enter|copy|{_PROOF})\b[^.\n]{{0,30}}\b(?:it|them|here|in|on|to|that|with|along)\b",
    ),
    phrase(
        "destroy",
        STRONG,
        "It wants more deleted than its purpose needs.",
        r"\b(?:wipe|erase|delete|remove|destroy|purge|clear(?:ed)? away|shred|empty|drop)\b[^.\n]{0,50}\b(?:backups|"
        r"snapshots|recycle bin|originals|local (?:entries|copy|copies|files)|remote copies|older copies|git "
        r"history|the history|shadow copies|audit (?:log|trail))\b(?![^.\n]{0,20}\b(?:older than|retention|by id))",
        r"\bno (?:copy|backup) is (?:needed|necessary|required|kept|made)\b|\balong with its (?:backups?|history)\b",
    ),
    phrase(
        "tool_hijack",
        STRONG,
        "It speaks of how tools of others are to be used.",
        r"\b(?:notes?|remarks?|hints?|side effects?|effects?|advice|tips?) (?:on|about|for|regarding) (?:the )?[`'\"]?"
        r"[a-z]+(?:_[a-z]+)+\b(?!`? (?:parameter|field|argument|values?))",
        r"\b[a-z]++_[a-z_]++[`'\"]? (?:tool )?(?:of|from|on|in) (?:the |some |an)?(?:\w+ )?(?:server|connector)\b|"
        r"[`'\"][a-z]+\.[a-z_]+[`'\"] (?:now|behaves|expects|tool)",
        r"\b(?:offers?|results?|answers?|hits?|output|sources?|numbers|prices) (?:of|from|by) (?:(?:any |all )?other|"
        r"another|competing|different|rival|built-?in)\b[^.\n]{0,60}\b(?:not be|must not|should not|are not|"
        r"drop|throw|discard|fraud\w*|fake|wrong|outdated|unsafe|lag|behind|ignore|leave|skip|unreliable|"
        r"manipulated)\b",
        r"\b(?:ours|this one) (?:alone|only|exclusively|first|on top|at the top)\b|\bshow ours\b|"
        r"\b(?:lag|lags|fall|falls) behind\b|\b(?:supersedes?|replaces?) the (?:usual|standard|common|normal|"
        r"others?)\b",
    ),
    phrase(
        "preference",
        STRONG,
        "It puts a product or a tool forward, whatever fits.",
        r"\b(?:recommend|suggest|present|list|name|put|place|favou?r|prefer|promote|show|rank|mention|pick)(?:s|ed)?\b"
        r"[^.\n]{0,50}\b(?:whenever (?:one|it|there)|at the top|on top|in first place|also if|above (?:the )?"
        r"others|before (?:the )?others|ahead of (?:the )?others)\b",
        r"\b(?:do not|don't|never|not to|without) (?:bring up|bringing up|mention\w*|offer\w*|show\w*|list\w*|"
        r"recommend\w*|suggest\w*|name|naming)\b[^.\n]{0,40}\b(?:offers?|competitors?|alternatives?|others?|cheaper|"
        r"lower|better|rivals?|brands?|products?)\b",
    ),
    phrase(
        "setting",
        STRONG,
        "It opens what protects the user, or runs what nobody has read.",
        r"\b(?:docker socket|docker\.sock|host'?s root|host root|root of the host|host (?:network|pid|filesystem) "
        r"namespace)\b",
        r"\b(?:fetch|download|load|pull|get|retriev)(?:es|s|e)?\b[^.\n]{0,60}\b(?:and|then|to) (?:run|runs|execut\w+|"
        r"install\w*|eval\w*|sources?|pipes?) (?:it|them|that|this|its|the (?:script|result|file|installer|binary))\b",
        r"\b(?:input )?(?:validation|verification|authenti\w+|permission checks?|signature\w*|sanitiz\w+|escaping|"
        r"calls to `?\w+`?)\b[^.\n]{0,50}\b(?:is|are|get|gets) (?:noise|removed|dropped|shortened|left out|replaced|"
        r"skipped|taken out|commented out|stripped|simplified|disabled)\b",
        r"\b(?:into|to|in) the (?:\w+ )?(?:group|role) (?:of )?(?:admin\w*|owners|root|sudo|superusers?)\b|\ball "
        r"scopes\b|"
        r"\bacl:? public\b|\bpolicy that stands in the way\b|\b(?:expired|invalid|self-signed) (?:ones|certificates?)\b"
        r"[^.\n]{0,40}\b(?:fine|valid|accept\w*|ignor\w+)\b",
        r"\b(?:leave|keep|put) (?:it|them) (?:there|back|in place)\b[^.\n]{0,40}\b(?:if|when|for the next|next run|"
        r"someone|again|for later)\b|\b(?:for|in) all (?:chats|sessions|conversations)(?: to come)?\b|\bafter a "
        r"restart\b|\b(?:shell|login|bash|zsh) profile\b|\bto the profile\b",
    ),
    phrase(
        "falsify",
        STRONG,
        "It has something untrue reported.",
        r"\b(?:report|count|show|describe|present|give|return|call|list|pass|treat|state|book)(?:s|ed)?\b"
        r"[^.\n]{0,40}\bas (?:valid|passed|green|exact|genuine|healthy|final|theirs|(?:the|their) "
        r"original|successful|real|skipped|expected|normal)\b",
        r"\b(?:is|are) told (?:that|it)\b|\b(?:say|report|answer|state|claim) (?:that )?(?:it|they|all|everything|the "
        r"\w+) (?:is|are|was|were|went|has|have)\b[^.\n]{0,40}\b(?:kept|fine|complete|done|ok|normal|rounding|stored|"
        r"safe|local\w*|device|successful|unchanged|requirement|well)\b",
        r"\b(?:double|half|twice|triple|highest|lowest|a tenth) (?:of )?(?:the )?(?:value|figure|dose|amount|price|"
        r"number)\b[^.\n]{0,40}\b(?:given|in it|in the|of the (?:week|month|year)|stated|table|leaflet)\b",
        r"\b(?:no|little|not much|not any) (?:point|use|need|sense|reason|value) (?:in|to) (?:going|go|telling|"
        r"mentioning|explaining|bothering|listing|showing|saying|discussing|raising|spelling|asking)\b|\b(?:no|not) "
        r"(?:a )?part of the (?:results?|answer|output|summary|report|reply)\b|\bread out\b[^.\n]{0,30}\bnot\b",
    ),
    phrase(
        "agent_data",
        MIDDLE,
        "It wants some of the talk, or what was given to the agent.",
        r"\blast (?:\d+|two|three|five|ten|twenty|few|several) (?:turns|messages|chats?|prompts|replies|questions|"
        r"exchanges|mails?|e-?mails|bank statements)\b|\b(?:dialog(?:ue)?|conversation|chat|thread|talk) in full\b|"
        r"\bin "
        r"this (?:chat|session|conversation)\b|\b(?:last|latest|previous) (?:prompt|reply|answer|question)\b",
    ),
)
