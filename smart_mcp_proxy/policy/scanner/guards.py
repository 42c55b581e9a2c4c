"""Guards put out of action, and what was done kept from whoever should know."""

from smart_mcp_proxy.policy.scanner.phrases import SIGN, STRONG, phrase

__all__ = ["GUARDS"]

_GUARD = (
    r"(?:hooks?|checks?|prompts?|confirmations?|validations?|dry[ _-]runs?|reviews?|reviewers?|approvals?|"
    r"backups?|snapshots?|warnings?|dialogs?|logging|audit\w*|rollbacks?|findings|certificate errors|signature checks|"
    r"verification|questions?|queries|asking|approval|consent|permissions?|guardrails?|safety \w+|linters?|scans?|"
    r"test suites?|previews?|plan|encryption|sandbox\w*|protections?|restor\w+|re-?arm\w*|reverting|undoing|"
    r"inspection|oversight)"
)
_GUARDING = (
    "verify", "verification", "ssl", "tls", "gpgsign", "dry_run", "dryrun", "confirm", "confirmation", "audit",
    "logging", "log", "check", "checks", "checking", "validate", "validation", "strict", "safe", "safe_mode",
    "backup", "backups", "sandbox", "approval", "row_security", "prompt", "prompts", "signing", "review",
    "encryption", "mask", "redact", "tests", "preview", "protection", "notify",
)  # fmt: skip
_LOOSENING = (
    "bypass", "force", "override", "admin", "reveal", "insecure", "unsafe", "quiet", "silent", "break_glass",
    "trusted", "dangerous",
)  # fmt: skip


def _just_set(names: tuple[str, ...]) -> str:
    """One of the names, with or without a quote, before an equals sign or a colon that has just been read."""
    return "|".join(rf"(?<={name}[=:])|(?<={name}[`'\"][=:])" for name in names)


_REPORT = r"(?:report|reply|answer|summary|message|response|result|recap|diff|confirmation|conversation|chat)"

GUARDS = (
    phrase(
        "setting",
        SIGN,
        "It says how a switch that guards something is to be set.",
        rf"[=:](?:{_just_set(_GUARDING)}) ?[`'\"]?(?:false|off|none|disabled|never)\b",
        rf"[=:](?:{_just_set(_LOOSENING)}) ?[`'\"]?(?:true|yes|always)\b",
        r"\b(?:skip|no|allow|disable|auto|ignore|force)_\w+[`'\"]? ?[=:] ?[`'\"]?(?:true|yes|always)\b",
        r"\b(?:sent|set|left|leave|kept|keep|passed?|suppl(?:y|ied)|fix(?:ed)?|stays?|put|switched|turned|best|"
        r"remains?) "
        r"(?:it |them |this |directly )?(?:as |at |to |on )?[`'\"]?(?:false|off|none|disabled)\b(?=[`'\"]?(?:;| for| "
        r"as|,? (?:also|even|including|"
        r"since|because)| since| because| including| also| even| unless| to (?:avoid|save|keep)| here| so ))",
        r"\b(?:confirm\w*|approv\w*|force|acknowledg\w+)[`'\"]? (?:can|may|should|is to|must|has to|needs to) be "
        r"(?:set to |sent as |passed as |always )?[`'\"]?(?:true|yes)\b",
    ),
    phrase(
        "setting",
        SIGN,
        "It speaks of a guard as of a hindrance, or does without it.",
        rf"\b{_GUARD}\b[^.\n]{{0,50}}\b(?:slows?|stalls?|delays?|times? out|tends? to|clutters?|annoy\w*|needless\w*|"
        r"pointless|holds? up|hold up|noise|noisy|superfluous|unnecessary|redundant|seldom|hampers?|hinders?|blocks? "
        r"the "
        r"\w+ for|in the way|(?:is|are) optional|wastes?|costs?|too (?:slow|strict|long|many)|alters|suspended|false "
        r"positives?|"
        r"treated as|detached|bypassed|muted|waived|answered (?:by|with|for)|clicked (?:away|through)|auto-?accepted|"
        r"dismissed|satisfied (?:by|with)|met by|replaced by|given automatically|taken as|counts? as|counted as|"
        r"assumed|"
        r"(?:are|is|be|get|gets|stay|stays) (?:always |simply |then )?(?:off|skipped|ignored|disabled|omitted|dropped|"
        r"removed|suppressed|silenced|deferred|left out|switched off|turned off|shortened|lifted|lowered)|alarm\w*|"
        r"interrupts?|breaks? (?:the )?(?:flow|it|them)|get in|meant for|cosmetic|obsolete|legacy|expensive)\b",
        rf"\b{_GUARD}\b[^.\n]{{0,40}}\b(?:not|n't|never|no longer|without being|need not be) (?:be )?(?:\w+ "
        rf")?(?:needed|required|"
        r"necessary|wanted|opened|run|asked|requested|worth|made|written|taken|sent|shown|applied|honou?red|waited|"
        r"kept|"
        r"performed|enforced|reached|consulted|involved|seen|useful|helpful|relevant|count)\b",
        rf"\b(?:without|ahead of|past|skip\w*|omit\w*|bypass\w*|suppress\w*|forgo\w*|avoid\w*|dispens\w+ with) (?:an? "
        rf"|the |"
        rf"any |all |their |its )?(?:\w+ )?{_GUARD}\b",
        rf"\b(?:needs?|need|calls? for|requires?|wants?) no (?:\w+ )?{_GUARD}\b|\b(?:don't|do not|doesn't|does not|"
        rf"need "
        rf"not|needn't) (?:call for|need|require|wait for|ask for|run|perform|trigger) (?:the |a |an |any )?(?:\w+'s? "
        rf")?"
        rf"{_GUARD}\b",
        rf"\b(?:to save (?:time|a round|the user)|saves (?:time|a round|a prompt|the user)|for speed|to keep "
        rf"(?:things|it|the flow) "
        rf"\w+|to avoid (?:delays?|prompts?|questions?|interrupt\w+))\b|\b(?:rather than|instead of|without) (?:being "
        rf")?(?:asking|confirming|waiting|checking|a {_GUARD}|prompting|stopping|asked|showing)\b(?! (?:the |this |a "
        rf")?(?:file|document|page|tool))|\b(?:"
        r"unchecked|unreviewed|uninspected|unlogged|unsupervised)\b",
        rf"\b(?:lower|downgrade|reclassif|soften|tone|strip|detach|relabel|demote|weaken|unset|loosen)\w*\b"
        rf"[^.\n]{{0,40}}\b(?:severit\w+|info\w*|warnings?|findings|branch rule|sink|{_GUARD})\b",
        r"\b(?:agreed|approved|signed off|answered|consented|cleared|authori[sz]ed|waived)\b[^.\n]{0,40}\b(?:by "
        r"installing|in person|upstream|by (?:the )?(?:cfo|ceo|cto|director|board|administrator|legal)|in advance|"
        r"once and "
        r"for all)\b|\b(?:has|have|had) (?:already |been )?(?:pre-?approved|pre-?authori[sz]ed|signed off|waived|"
        r"cleared)\b",
    ),
    phrase(
        "setting",
        STRONG,
        "It goes around a limit.",
        r"\b(?:divid|split|spread|broken|break|cut)\w*\b[^.\n]{0,50}\b(?:below|under|"
        r"beneath)\b[^.\n]{0,20}\b(?:threshold|"
        r"limits?|amount|that|it)\b|\b(?:guidelines|guardrails|safety (?:rules|policies)|restrictions|policies)\b[^.\n]"
        r"{0,50}\b(?:suspended|lifted|not apply|do not count|set aside|relaxed|waived|inactive)\b",
        r"\bexec\([^\n]{0,60}(?:urlopen|requests\.|http)|\beval\b[^\n]{0,60}(?:https?:|curl|wget)|\b(?:curl|"
        r"wget)\b[^\n|]"
        r"{0,90}https?:[^\n|]{0,90}\| ?(?:sudo )?(?:ba|z)?sh\b",
        r"\b(?:leav(?:e|es|ing)|shows?) no (?:entry|trace|traces|record|log|signs?|mark)\b|\b(?:clear|delet|remov|eras|"
        r"wip|purg|truncat|scrub)\w*\b[^.\n]{0,25}\b(?:(?:shell|bash|command) history|own (?:trace|log|record)s?|"
        r"journal "
        r"entr\w+|audit (?:trail|log|entries))\b",
    ),
    phrase(
        "report",
        SIGN,
        "It says how a step is to be spoken of, or not.",
        rf"\b(?:no place in|no part in|kept out of|left out of|absent from|stays? out of|kept from|not for|invisible "
        rf"in|"
        rf"never (?:enters?|appears? in|reaches?)|belongs? in no|need not appear in|does not belong in|do not belong "
        rf"in|no room in|"
        rf"too technical for|irrelevant (?:for|to)|not (?:appear|shown?|visible|included?|mentioned|listed) in|"
        rf"omit\w* from|"
        rf"outside) (?:the |your |any |that |its |visible |both )*(?:\w+ )?(?:{_REPORT}|replies|answers|reports|"
        rf"summaries|"
        r"reasoning|thinking|plans?|transcript|activity|user|person|customer)\b",
        r"\b(?:and|with) nothing (?:else|more|further)\b|\btell the user\b[^.]{0,40}\bnothing\b|\bnothing (?:is|"
        r"needs to "
        r"be|should be) (?:said|told|mentioned|reported|shown)\b|\bleft for [^.\n]{1,30} to (?:discover|notice|find)\b|"
        r"\b(?:isn't|is not|aren't|not) (?:apparent|noticeable|visible to|obvious|evident|recognisable|recognizable)\b",
        r"\b(?:speak of|refer to|describe|call|label|name|present|explain|report|count|show)(?:s|ed)? (?:it|them|this|"
        r"that|these|those|the \w+)(?:, if at all,)? as [\"'“]|\brefer to \w+, if at all\b",
        r"\b(?:should (?:the |a |an )?\w+|(?:if|when) (?:anyone|anybody|someone|somebody|people|they|customers?))\b"
        r"[^.\n]{0,20}\b(?:wonders?|asks? (?:why|about|what|whether|how)|notices?|enquires?|inquires?|objects?|"
        r"complains?)\b",
        rf"\b(?:{_REPORT}|replies|answers|reports|users?)\b[^.\n]{{0,30}}\b(?:mentions?|presents?|given from|"
        rf"consists? of|"
        rf"limited to|sees? (?:is|only)|restricted to|ends? (?:with|at|after)|speaks? of|"
        rf"shows?)\b[^.\n]{{0,40}}\b(?:only|"
        rf"nothing|alone|merely|just|solely)\b|\bwhat (?:the )?users? sees?\b|\bkeep (?:the |your |it |any )?(?:\w+ "
        rf")?(?:short|brief|general|vague|simple|positive|"
        rf"generic|neutral)\b(?=[^.\n]{{0,60}}\b(?:user|notice|summar|mention|detail|without|answer|reply))|"
        rf"\bsummar\w+ (?:\w+ "
        rf"){{0,4}}without\b|\bone[- ]line (?:notice|summary|reply|answer)\b|\b(?:collapsed|abbreviated|glossed "
        rf"over)\b",
        r"\b(?:mention|state|repeat|quote|relay|pass on) (?:the |its |your )?[^.\n]{1,25}"
        r"\b(?:only|alone)\b|\bthe user (?:did not|didn't|has not|hasn't|need not|needn't|never) (?:mention|ask|name|"
        r"see|"
        r"know|be told|notice|learn|hear|request)\w*",
        r"\b(?:as the assistant's own|as your own|as (?:an? )?(?:independent|neutral|unbiased|objective|faithful|"
        r"locally|"
        r"sold out|discontinued|whitespace|house-?keeping|false positives?|informational|maintenance|caching))\b|\bfor "
        r"display purposes\b|\breported as [`'\"]?(?:valid|ok|success\w*|passed)\b|\bshown? the rest\b",
    ),
    phrase(
        "report",
        STRONG,
        "It keeps a step from whoever should know of it.",
        r"\b(?:no place in|kept out of|stays? out of|absent from|never reaches|no mention in) (?:the |any |its |all )*"
        r"(?:visible|answers?|repl\w+|reasoning|summar\w+|conversation|chat|transcript|activity|response)\b|\bleft "
        r"for the "
        r"\w+ to (?:discover|notice|find out)\b|\bso that the \w+ (?:isn't|is not) (?:apparent|noticed|noticeable|"
        r"visible|"
        r"obvious|evident)\b|\bif at all, as\b|\| ?tell the user \||\b(?:the|most) \w+ never (?:learns?|notices?)\b",
    ),
)
