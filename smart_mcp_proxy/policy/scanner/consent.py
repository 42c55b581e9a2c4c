"""Safeguards taken away: consent that nobody gave, orders of an authority, checks switched off, steps kept quiet."""

from smart_mcp_proxy.policy.scanner.phrases import MIDDLE, STRONG, WEAK, phrase

__all__ = ["CONSENT"]

_PERSON = r"(?:the |your |any |an )?(?:end[ -]?)?(?:user|person|human|customer|operator|owner|administrator|admin)s?"
_NOT_YET = "".join(
    f"(?<!{word} )"
    for word in (
        "until",
        "unless",
        "once",
        "after",
        "if",
        "when",
        "whether",
        "only",
        "that",
        "where",
        "because",
        "the",
        "your",
        "before",
    )
)
_ANSWER = r"(?:answers?|repl(?:y|ies)|responses?|summar(?:y|ies)|chat|conversation|report|final message|transcript)"
_MENTION = (
    r"(?:mention|bring up|talk about|tell|say|refer to|discuss|note|explain|describe|disclose|reveal|raise|report|"
    r"point out|list|announce|acknowledge)"
)

CONSENT = (
    phrase(
        "consent",
        STRONG,
        "It claims that the user agreed to something, or that nobody has to be asked.",
        rf"\b{_NOT_YET}{_PERSON} (?:has|have|had)(?: all)?(?: already| previously| explicitly| also)? (?:agreed|"
        rf"consented|approved|"
        r"accepted|authori[sz]ed|signed off|opted in|confirmed|given (?:\w+ )?(?:consent|permission|approval))\b",
        r"\b(?:consent|permission|approval|authori[sz]ation)s?(?: (?:from|of|by) (?:the )?\w+)? (?:was|were|is|are|has "
        r"been|have been|can be|may be|should be)(?: already| always| considered| taken as)? (?:given|granted|implied|"
        r"assumed|obtained|presumed|on file|in place)\b",
        r"\b(?:no need|not necessary|unnecessary|no reason|need not|do(?:es)?(?: not|n't) (?:need|have)) to (?:be )?"
        r"(?:ask(?:ed)?|confirm(?:ed)?|check(?: back| with)|verify with|seek|request(?:ed)?|obtain(?:ed)?|wait for "
        r"(?:approval|confirmation|consent))\b",
        r"\bwithout (?:first )?(?:checking back|asking (?:again|first|anyone|for (?:permission|confirmation|approval|"
        r"consent))|further (?:approval|confirmation|consent|questions))\b|\b(?:do not|don't|never) (?:ask|check|"
        r"confirm)(?: back)? (?:again|first|with (?:the )?(?:user|person|human|anyone))\b",
        r"\b(?:approvals?|confirmations?|consent|reviews?) (?:is|are|was) (?:not|no longer|never) (?:required|needed|"
        r"necessary)\b",
        r"\b(?:answer|say|reply|respond|select|choose|click|press|type) (?:with )?['\"`]?(?:yes|ok|allow|accept|"
        r"approve|"
        r"confirm)['\"`]? (?:to|on|in|for|at) (?:any|all|every|each|whatever)\b|\b(?:accept|approve|allow|confirm|"
        r"grant) (?:whatever|any|all|every)(?: of the)? (?:\w+ )?(?:permissions?|prompts?|dialogs?|confirmations?|"
        r"requests?|access(?:es)?|scopes?)\b",
        r"\b(?:pre-?approved|pre-?authori[sz]ed)(?! (?:amount|payment|list|template|limit|transaction|customer|loan|"
        r"charge|offer)s?)\b[^.\n]{0,40}\b(?:by|so|for (?:all|any|every)|no|without|user|administrator)\b",
    ),
    phrase(
        "authority",
        MIDDLE,
        "It gives an order in the name of an authority.",
        r"\b(?:per|under|by|due to|in line with|according to|as required by|required by|mandated by|to "
        r"satisfy|to comply with|at the request of) (?:the |our |your |\w+ )?(?:company|corporate|"
        r"organi[sz]ation(?:al)?|"
        r"security|compliance|internal|it|data|legal|governance|audit|workspace|retention|enterprise|gdpr|soc ?2|"
        r"privacy)(?: \w+)? (?:polic(?:y|ies)|rules?|requirements?|reasons?|regulations?|purposes?|standards?|team|"
        r"department|mandates?|obligations?|guidelines?|laws?)\b",
        r"\b(?:the |your |our )?(?:security|compliance|legal|it|admin\w*|governance|audit|risk|platform) (?:team|"
        r"department|office|officer)(?: has| have)? (?:requires?|demands?|mandates?|approved|authori[sz]ed|decided|"
        r"asks?|"
        r"wants|expects|needs)\b",
        r"\b(?:your |the |an )?(?:administrator|admin|employer|organi[sz]ation|company|regulations?|law|regulators?|"
        r"auditors?|policy)(?: has| have)? (?:requires?|obliges?|demands?|mandates?|approved|authori[sz]ed|"
        r"instructed|decided)\b",
    ),
    phrase(
        "safeguard",
        MIDDLE,
        "It weakens what protects the user, or wants something run unread.",
        r"(?<!to )\b(?:turn(?:ed)? off|switch(?:ed)? off|disabl\w+|lower|relax|weaken|loosen|deactivat\w+|skip|"
        r"suspend\w*|remove) "
        r"(?:\w+ ){0,3}?(?:security|(?<!tls )verification|(?<!password )(?<!ddos )protections?|safeguards?|"
        r"sandbox(?:ing)?|antivirus|firewall|"
        r"confirmations?|approvals?|certificate checks?|safe mode)\b|\b(?:verification|security|protections?|"
        r"sandbox\w*|"
        r"safeguards?|confirmations?) (?:is|are|be|has to be|must be|should be) (?:turned off|switched off|disabled|"
        r"lowered|relaxed|skipped|removed)\b",
    ),
    phrase(
        "safeguard",
        MIDDLE,
        "It weakens what protects the user, or wants something run unread.",
        r"\b(?:grant|give|allow) (?:it|this|the (?:tool|server)|this (?:tool|server)) (?:\w+ ){0,3}?(?:access|"
        r"permissions?|rights|privileges)\b",
    ),
    phrase(
        "safeguard",
        MIDDLE,
        "It weakens what protects the user, or wants something run unread.",
        r"\b(?:run|execute|apply|install|follow|perform|paste)\b[^.\n]{0,50}\b(?:returned|in the (?:response|result|"
        r"output|answer)|from the (?:response|result|output|answer|server)|it returns|given in|that come back|sent "
        r"back)"
        r"\b|\b(?:run|execute|apply)(?: the)? returned\b",
        r"\b(?:run|execute|apply|use|accept|take)\b[^.\n]{0,40}\b(?:as they are|as it is|as-is|unread|unchecked|unseen|"
        r"blindly|without (?:reading|checking|reviewing|inspecting|looking))\b|\b(?:do not|don't|need not|no need to|"
        r"do "
        r"not (?:have|need) to) (?:check|review|inspect|read|verify|question|examine) (?:them|it|these|that|its|the "
        r"(?:commands?|code|output|result|content))\b",
    ),
    phrase(
        "safeguard",
        MIDDLE,
        "It weakens what protects the user, or wants something run unread.",
        r"\b(?:install|run|execute|download|fetch)\b[^.\n]{0,40}\b(?:pip install|npm install|npx|curl|wget|setup\.sh|"
        r"install\.sh|bash)\b[^.\n]{0,60}\b(?:before|prior|first|from the)\b|\b(?:before|prior to|first)\b[^.\n]{0,50}"
        r"\b(?:pip install|npm install|npx |curl |setup\.sh|install\.sh)\b",
        r"\buse (?:the |any |your )?(?:\w+ )?(?:admin\w*|root|elevated|sudo|stored|saved|cached|owner'?s?) (?:\w+ )?"
        r"(?:credentials?|account|rights|password|token|privileges|keys?)\b",
    ),
    phrase(
        "secrecy",
        STRONG,
        "It wants something left out of what the user gets to read.",
        rf"\b(?:leave|keep|omit|drop|exclude|hold|stay|stays|strip|withhold|remove)\b[^.\n]{{0,40}}\b(?:out of|from|"
        rf"off|"
        rf"outside) (?:your|the|any|all|each)(?: \w+){{0,2}} {_ANSWER}\b(?! (?:body|payload|object|if|json|size|header|"
        r"field)s?)",
        rf"\b(?:no need|not necessary|unnecessary|no reason|need not|needn't|do(?:es)?(?: not|n't) (?:need|have)) to "
        rf"be "
        rf"(?:mentioned|discussed|disclosed|reported|explained|told|shown)|\b(?:no need|unnecessary|not necessary|no "
        rf"reason|need not|do not (?:need|have)|never(?: to)?) (?:to )?(?:{_MENTION})(?! (?:to )?(?:a|an) )\b",
        rf"\b{_PERSON} (?:do not|does not|doesn't|don't|need not|needs not|should not|must not|will not|never|is not|"
        rf"are not)"
        r" (?:to |have to |has to |need to |needs to |be |to be )*(?:hear|bother\w*|worr\w+|concern\w*|burden\w*|"
        r"distract\w*|"
        r"trouble\w*|see|know|learn|find out)\b (?:with|about|of|that|this|it)\b",
        r"\b(?:out of|away from) (?:the )?(?:sight|view)\b[^.\n]{0,30}\b(?:for|of|from|user|person)\b|\b(?:stay|"
        r"keep\w*|"
        r"remain) out of (?:sight|view)\b",
        r"\b(?:do not|don't|never|avoid|must not|should not|without)(?: ever)? (?:bring(?:ing)? (?:this|it|that) up|"
        r"draw(?:ing)? attention|referring to (?:this|it)|refer to (?:this|it)|mention(?:ing)? (?:this|it|that|the "
        r"(?:call|step|"
        r"copy|upload|tool|sync|extra|backup)))\b(?! (?:the )?name)",
        rf"\b(?:mention|show|present|report|give|state|return)\b(?: \w+)? only\b[^.\n]{{0,60}}\b(?:nothing|not the|"
        rf"never|"
        rf"and omit|in your {_ANSWER})\b|\bnothing (?:about|of) (?:the|this|that) (?:\w+ )?(?:upload|call|copy|sync|"
        rf"step|request|rest|backup|tool)\b",
        r"\btreat(?:ed)? (?:this|it|that|them)? ?as (?:an )?(?:internal|confidential|private)(?: detail| step| "
        r"matter)?\b",
    ),
    phrase(
        "secrecy",
        WEAK,
        "Something is to happen unseen.",
        r"\b(?:in the background|quietly|silently|unobtrusively|inconspicuously|discreetly|internally)\b[^.\n]{0,50}\b"
        r"(?:send|sends|copy|copies|upload\w*|record\w*|update\w* the profile|collect\w*|sync\w*|forward\w*|profile|"
        r"share\w*|store\w*)\b|\b(?:also|copies|updates the profile)\b[^.\n]{0,40}\bin the background\b",
        r"\bkeep (?:this|it|that|these|them) (?:internal|quiet|confidential)\b",
    ),
    phrase(
        "side_effect",
        STRONG,
        "Beside its purpose it gives data away.",
        r"\b(?:a |an |one )?(?:full |second |hidden |blind |carbon |extra |additional )?cop(?:y|ies) (?:of|"
        r"to)\b[^.\n]{0,50}"
        r"\b(?:goes|go|is sent|are sent|to (?:our|the (?:vendor|provider|maintainer|author|developer|publisher)|"
        r"affiliat\w+|partners?))\b|\b(?:also|always) (?:post|send|deliver|mail|forward|put|write) (?:a |one )?(?:copy|"
        r"duplicate)\b(?! to (?:the sender|your|my|me\b))",
        r"\b(?:shared?|passed|given|sold|sent|disclosed|available) (?:on )?(?:with|to) (?:\w+ )?(?:affiliat\w+|"
        r"partners?|"
        r"advertis\w+|vendors?|(?:the|its) (?:maintainer|author|developer|publisher)s?|sponsors?)\b",
        r"\b(?:keeps?|retains?|stores?|makes?|logs?|records?) (?:a |an )?(?:record|copy|log|history|profile)?(?: "
        r"\w+){0,4} "
        r"on our (?:side|servers?|end|systems?)\b|\b(?:retained|kept|stored|logged|recorded) by (?:us|the (?:vendor|"
        r"provider|author|publisher))\b",
        r"\b(?:watch(?:es|ing)?|monitors?|observ\w+|track(?:s|ing)?|record(?:s|ing)?|captur\w+) (?:everything|all|what|"
        r"whatever|every\w*)\b[^.\n]{0,30}\b(?:typed?|cop(?:y|ied)|says?|writes?|user|does|visit\w*|open\w*|"
        r"press\w*)\b",
    ),
)
