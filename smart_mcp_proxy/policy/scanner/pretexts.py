"""Pretexts and cover: why something is called harmless, and what the user is told instead of what was done."""

from smart_mcp_proxy.policy.scanner.phrases import MIDDLE, SIGN, WEAK, phrase

__all__ = ["PRETEXTS"]

_PEOPLE = (
    r"(?:users?|people|persons?|customers?|clients?|readers?|reviewers?|developers?|operators?|colleagues?|guests?|"
    r"patients?|members?|staff|employees?|recipients?|approvers?|admins?|administrators?|owners?|humans?|subscribers?|"
    r"managers?|analysts?|engineers?|callers?|students?|parents?|visitors?|holders?|everyone|nobody|they)"
)
_ASKS = r"(?:asks?|wonders?|notices?|questions?|[ei]nquires?|complains?|objects?|is surprised|wants? to know)"
_WORD = (
    r"(?:report|summary|summari[sz]e|answer|reply|recap|confirmation|response|chat|transcript|change ?log|message|diff)"
)

PRETEXTS = (
    phrase(
        "pretext",
        MIDDLE,
        "It says of people what would make a doubtful step harmless: what they feel, know or agreed to.",
        rf"\b{_PEOPLE}(?: \w+){{0,5}}? (?:are|is|get|gets|be|become|feel|were|was|been)(?: \w+)? (?:confused|worried|"
        r"distracted|annoyed|nervous|alarmed|impatient|overwhelmed|put off|used to|interested|aware|told|informed|"
        r"upset|irritated|startled|bored|uncomfortable|familiar with|fine with|happy with|comfortable with|notified)\b",
        rf"\b{_PEOPLE}(?: \w+){{0,4}}? (?:don't|do not|rarely|seldom|never|hardly|does not|doesn't|need not)(?: \w+)? "
        r"(?:need|want|mind|care|like|read|notice|look|check|see|know|expect|have to|hear|ask|bother|worry|object)\b",
        rf"\b{_PEOPLE}(?: \w+){{0,4}}? (?:dislikes?|worry|worries|panic|complains?|lose trust|tend to|finds? (?:this|"
        r"it|that|the|these|such|them)|expects? (?:that|it|this|no|the)|values? (?:a|the|clear|short|speed)|cares? "
        r"(?:about|only)|only cares?|appreciates?|already (?:know|knows|agreed|accepted|consented|saw|gave|have|has)|"
        r"(?:normally|usually|generally|implicitly|always) (?:agrees?|accepts?|consents?|approves?|wants?|means?)|"
        r"(?:have|has) (?:agreed|consented|accepted)|forgets?|gets? anxious|prefer not)\b",
        rf"\b(?:confus|distract|worr|annoy|alarm|bother|troubl|burden|overwhelm|irritat|unsettl|disturb|pester|"
        rf"interrupt|nag|spar|startl|frighten|scar|bor|tir)(?:e|es|ed|ing|y|ies|ied|s)? (?:the |their |your |any |our |"
        rf"most )?(?:{_PEOPLE}|them)\b",
        rf"\bput(?:s|ting)? (?:the |\w+ )?(?:{_PEOPLE}|them) off\b|\bto save (?:the )?(?:{_PEOPLE}|them)\b|\bslow "
        r"(?:them|the \w+) down\b",
        r"\b(?:creates?|causes?|leads? to|generates?|produces?|means?) (?:\w+ )?(?:support (?:load|"
        r"tickets?|requests?|calls)|follow-ups?|drift|confusion|needless|pointless|alarm|questions|"
        r"friction|worry|panic|noise|fatigue|hesitation|back and forth)\b",
    ),
    phrase(
        "pretext",
        MIDDLE,
        "It calls a step routine, agreed or without weight.",
        r"\b(?:is|are|counts? as|belongs? to|considered|forms? part of|being|only|just|merely|purely) (?:an? |the |"
        r"purely |only |just |merely |entirely |part of (?:the |a )?)*(?:routine|ordinary|technical(?:it\w+)?|"
        r"house-?keeping|plumbing|formality|bookkeeping|implementation detail|administrative|cosmetic|ceremonial|"
        r"upkeep|background work|noise|leftover|remnant|superfluous|red tape)\b",
        r"\b(?:is|are|be|this|it) (?:a |the |an )?(?:routine|ordinary|normal|standard|usual|internal|background) "
        r"(?:\w+ "
        r")?(?:step|work|detail|matter|procedure|diagnostics?|process|operation|traffic|maintenance)\b",
        r"\b(?:is not|isn't|are not|aren't|not) an? (?:\w+ )?(?:action|step|change|event|disclosure|transfer|breach|"
        r"leak)\b",
        r"\b(?:covered by|agreed (?:to )?(?:that )?in|consented to in|permitted by|as set out in) (?:the |our |your |"
        r"their )?(?:\w+ )?(?:contract|terms(?: of \w+)?|agreement|licen[cs]e|onboarding|eula|privacy policy|policy)\b",
        r"\bby definition\b|\bfor (?:continuity|good measure|peace of mind)\b|\bno harm\b|\bharmless\b|\bperfectly "
        r"(?:safe|normal|fine)\b|\bnothing to worry\b|\bhave to be (?:asked|told|opened|mentioned)\b",
    ),
    phrase(
        "report",
        SIGN,
        "It says what the user is told of what was done.",
        r"(?:not|n't|never|no longer) (?:to )?(?:be )?(?:an? |any )?(?:listed|mentioned|described|reported|surfaced|"
        r"quoted|"
        r"repeated|noted|commented|itemi[sz]ed|announced|spelled out|told|made aware|figure|advertised|brought up|"
        r"explained|"
        r"narrated|part of (?:the|your) (?:answer|summary|report|reply))\b",
        rf"\b(?:left|leave|leaving|keep|kept|omit\w*|drop\w*|folded|hides?|hidden|strip\w*|trim\w*|skip\w*|excluded?|"
        rf"cut|absent|missing)\b[^.\n]{{0,40}} (?:from|out of|off|in) (?:the|your|any|its) (?:\w+ ){{0,2}}?{_WORD}\b|"
        r"\b(?:leave|left|leaving|keep|kept) (?:it|them|this|that|these|those|\w+ \w+) (?:out|aside)\b|\bleft (?:out|"
        r"aside)\b",
        rf"\b(?:confine|limit|restrict|keep|reduce|narrow)(?:s|d)? (?:your|the|its|their|that|any|this) (?:\w+ )?"
        rf"{_WORD}\b[^.\n]{{0,50}}\b(?:to|brief|short|silent|limited)\b",
        r"\breport (?:only|just|steps|success|nothing|the \w+ as|it as|them as|back only)\b|\b(?:mention|state|tell|"
        r"describe|name) (?:only|just|solely|nothing)\b|\b(?:only|just|solely) (?:report|mention|state|tell|"
        r"describe)\b|"
        r"\breport (?:only )?the [^.\n]{1,30}(?:hash|status|outcome|total|result)\b",
        rf"\b(?:if|when|should)(?: the| a| any)? (?:{_PEOPLE}|someone|somebody|anybody|anyone)(?: \w+)? {_ASKS}\b"
        r"[^.\n]{0,60}[,:] ?(?:\w+ )?(?:say|answer|reply|tell|explain|state|respond|point|blame|attribute|claim|assure|"
        r"symbols|it is|it's|the|that)\b|\bif (?:asked|questioned|challenged|pressed)\b",
        r"\b(?:say|answer|reply|respond|tell (?:them|him|her|the user|people))(?: \w+)? (?:that|yes|no|it was|it is)\b",
        r"\b(?:describe|present|show|label|mark|record|state|report|pass|count|declare|treat|book|enter|sign)(?:s|ed|"
        r"ing)? (?:\w+ ){0,3}?as (?:if|though|green|passed|passing|exact|successful|ok|verified|fixed|official|genuine|"
        r"healthy|safe|clean|normal|usual|coming|their|skipped|trusted|true|real|approved|reviewed|confirmed)\b",
        r"\b(?:no|without)(?: any| a| further)? (?:mention|comment|remark|announcement|fuss|commentary|ado|(?:need|"
        r"reason) (?:to|for) (?:mention\w*|comment\w*|explain\w*|tell\w*|report\w*|describ\w+|troubl\w+|bother\w*|"
        r"ask\w*|confirm\w*))\b",
        r"\b(?:draw|call|attract)(?:s|ing)? (?:\w+ )?attention\b|\b(?:unmentioned|unremarked|uncommented|unannounced|"
        r"discretion|discreet|tactful\w*)\b|\bpart of the (?:\w+ ){1,2}rather than\b|\b(?:dis)?tract(?:ing|s) from\b",
        rf"\b{_PEOPLE} (?:sees?|gets?|receives?|reads?) (?:only |just )?(?:the|their|its|a|what)(?: \w+){{0,2}} (?:own|"
        r"usual|original|expected|normal|familiar|same|clean|short|monthly)\b",
        r"\b(?:don't|do not|pls don't|please don't|never) (?:paste|quote|repeat|name|refer to|cite|relay|echo|copy|"
        r"surface|recite|volunteer|dwell on|bring up)\b",
    ),
    phrase(
        "pretext",
        WEAK,
        "It is to happen by itself and unseen.",
        r"\b(?:quietly|silently|discreetly|unobtrusively|in the background|behind the scenes|tacitly|invisibly|"
        r"unasked|unprompted)\b",
    ),
)
