"""Consent that nobody gave, and data that is given away beside the purpose."""

from smart_mcp_proxy.policy.scanner.rules.phrases import STRONG, phrase

__all__ = ["CONSENT"]

_PERSON = r"(?:the |your |any |an )?(?:end[ -]?)?(?:user|person|human|customer|operator|owner|administrator|admin)s?"
_NOT_YET = "".join(
    f"(?<!{word} )"
    for word in (
        *("until", "unless", "once", "after", "if", "when", "whether", "only", "that", "where", "because"),
        *("the", "your", "before"),
    )
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
