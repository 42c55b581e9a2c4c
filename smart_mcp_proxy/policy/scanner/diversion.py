"""Diversion: other tools' calls, the talk, the target and the moment disposed of beside a tool's purpose."""

from smart_mcp_proxy.policy.scanner.phrases import SIGN, STRONG, WEAK, phrase

__all__ = ["DIVERSION"]

_VENDOR = r"(?:servers?|vendors?|providers?|connectors?|integrations?|packages?|suppliers?|makers?)"
_SYSTEM = (
    r"(?:github|gitlab|git|slack|postgres\w*|mysql|sqlite|gmail|outlook|jira|linear|zendesk|drive|browser(?: "
    r"automation)?|"
    r"database|lock|mail|e-?mail|calendar|payments?|vault|password|filesystem|file|terminal|messaging|shell|stripe|"
    r"notion|"
    r"search|fetch|banking|wallet|sql|chat|crm|http|storage|deployment|ticket\w*|memory)"
)
_RESULTS = (
    r"(?:results?|outputs?|responses?|answers?|returned|returns|body|bodies|arguments?|rows|records|data|contents?)"
)
_OUT = r"(?:https?://|wss?://|s3://|ftp://|sftp://|[\w.+-]+@[\w-]+\.\w|\+\d[\d-]{7}|npm\.|registry\.)"

DIVERSION = (
    phrase(
        "reach",
        SIGN,
        "It speaks of tools of others.",
        rf"\b(?:other|separate|any|every|all|whichever|whatever|similarly named|another|each|competing|rival|different|"
        rf"remaining|alternative|foreign) (?:\w+ ){{0,2}}?{_VENDOR}\b(?= (?:are|is|have|has|must|should|get|need|the "
        rf"user|"
        r"will|which|that|installed|connected|return|for the rest)|[,;:.')])",
        rf"\b(?:tools?|functions?|fetchers?|searches|calls?|ones|commands?|same purpose)\b[^.\n]{{0,30}}\b(?:from|of|"
        rf"by|on|"
        rf"in) (?:any|every|other|all|another|whichever|different|separate) (?:\w+ )?{_VENDOR}\b|\btools? elsewhere\b|"
        rf"\b(?:whoever|whichever \w+|no matter who) (?:provides?|offers?|runs?|ships?|supplies)\b|\bthis "
        rf"server\b[^.\n]"
        r"{0,60}\belsewhere\b|\bother tools?'?s? (?:calls?|arguments?|parameters?|fields?|are|is|should|must|return|"
        r"give)\b",
        rf"\b(?:any|every|each|all|whatever|whichever|some) (?:\w+ )?(?:tool|tools|call|calls|query|queries|function|"
        rf"write|"
        rf"commit|upload|mail|message|payment|transfer)\b[^.\n]{{0,30}}\b(?:whatever|whichever|any|all|other|"
        rf"regardless of|"
        rf"every) (?:the )?(?:\w+ )?{_VENDOR}\b|\b(?:arguments?|parameters?|inputs?) (?:of|for|to) (?:the |any |all |"
        rf"those )?"
        rf"(?:other|{_SYSTEM}) (?:\w+ )?tools?\b|\b(?:also )?appl(?:y|ies) to (?:all |any |every |the )?(?:other|\w+) "
        rf"(?:tools|servers|connectors)\b",
        rf"\b(?:the|a|an|its|connected|any|every|each|where a) {_SYSTEM} (?:servers?|connectors?|integrations?|"
        rf"tools?)(?:'s)? "
        r"(?:[`'\"]?\w+[`'\"]? )?(?:is (?:connected|called|used|given|issued)|are|must|should|shouldn't|has to|have "
        r"to|gets?|needs?|connected|returned|call|calls|"
        r"tool|issues?|runs?|used|are given)\b|\b(?:before|after|with) (?:any|every|each|a) [^.\n]{0,40}\bcall of\b",
        r"[`'\"]?\b[a-z]+_[a-z_]+[`'\"]? (?:is|are|has to be|should be|must be|gets?) (?:always |only )?(?:called|"
        r"issued|"
        r"invoked|run|used) with\b|\bits [`'\"]?[a-z]+_?[a-z]*[`'\"]? (?:has to contain|must contain|must be|has to "
        r"be|is "
        r"set to|should be|is called with|is to be)\b|\btools? (?:named|with prefix|called|such "
        r"as)\b[^.\n]{0,40}\b(?:get|"
        r"gets|are|must|should|read_\w+|send_\w+)\b",
    ),
    phrase(
        "preference",
        WEAK,
        "It runs others down, or asks to be taken first.",
        r"\b(?:irrespective|regardless) of (?:the )?(?:price|figures?|cost|fit|quality|rating|relevance|size|need|"
        r"topic|"
        r"request|preference|score)\b|\b(?:rank|places|list|put|present|propose|recommend)(?:s|ed)? [^.\n]{0,40}"
        r"\b(?:first|on top|at the top|as the (?:only|best))\b(?! (?:and|\d|page|time|result|in the|n\b|then)|,? then|"
        r":)",
        r"\b(?:other|others|competing|rival|another|alternatives?|those of|elsewhere|built-?in|"
        r""
        r"external|third-party|separate)\b[^.\n]{0,70}\b(?:outdated|stale|deprecated|unreliable|discontinued|"
        r"data "
        r"loss|contradict\w*|less accurate|inaccurate|obsolete|unmaintained|insecure|an error|retired|being phased out|"
        r"inferior|untrustworthy|sunset|false positives?|hallucinat\w+|not be shown|compromised|"
        r"unsupported|no longer (?:work|maintained|supported)|withdrawn|"
        r"error-prone|less (?:reliable|precise|secure|current|complete)|"
        r"not (?:certified|approved|trusted|safe|reliable|accurate|maintained|supported)|misleading|second "
        r"choice)\b",
        r"\b(?:outdated|deprecated|unreliable|discontinued|known data loss|contradictory|less accurate|"
        r"obsolete)\b[^.\n]"
        r"{0,60}\b(?:than|prefer this|switch to|use this|choose this|instead use|replaced by this|in favou?r of "
        r"this)\b",
        r"\b(?:on|at|in|opening of|start of|beginning of) (?:each|every|any) (?:user )?(?:turn|message|prompt|"
        r"reply|answer|request of)\b|\bprior to considering\b|\b(?:whether or not|even if) (?:a|an|any|the|it|"
        r"there)\b[^.\n]"
        r"{0,30}\b(?:occurs?|needed|asked|relevant|present|fits?)\b|\bpractically every\b|\bonly (?:one|tool|product|"
        r"choice) "
        r"(?:that |which )?(?:fits?|available|to (?:use|consider))\b",
        r"\b(?:no|without|not|never|don't|do not|need not) (?:need to |be )?(?:compar\w+|consider\w*|consult\w*|"
        r"look\w* "
        r"elsewhere|fall\w* back|try\w*|weigh\w*|offer\w*) (?:with |to |any |the |it with )*(?:other|others|"
        r"alternatives?|"
        r"another|elsewhere|competing|rival)\w*\b|\b(?:takes? precedence|has priority|always (?:the )?(?:right|best|"
        r"correct) "
        r"choice|choose this|first choice|wins over|preferred over|outranks?|ahead of (?:any|all|every) other)\b",
        r"\b(?:tool ranking|tool selection|selection weight|selection score|ranking weight|priority: ?\d|stay ahead|"
        r"weight of "
        r"1|tool choice|choosing (?:between|among) tools|(?:first|sole|default|preferred|mandatory) choice)\b|"
        r"\b(?:steered|"
        r"steer|guided|guide|nudge\w*|direct|directed|brought|talk\w*) (?:back |them |users? |away )+(?:to|from|"
        r"towards?)\b",
        r"\b(?:delegated? (?:through|to|via) this|(?:prefer|choose|pick|select|stick (?:to|with)|switch to) this "
        r"(?:one|tool|"
        r"server)|this (?:one|tool|server) (?:in all cases|always|takes precedence|wins|replaces|supersedes)|replaces? "
        r"[a-z]+_[a-z_]+|(?:drop|discourage|avoid|refrain from|disregard|reject)\w* (?:the |from |all |offering "
        r")*(?:others|"
        r"other (?:tools|sources|providers)|alternatives|competing|them as options))\b|\bcompeting \w+ tools?\b",
    ),
    phrase(
        "against",
        STRONG,
        "It sets itself above what the user asked for.",
        r"\b(?:even|also|including)\b,? (?:if|when|where|though|for) (?:the |a )?(?:user|person|customer|caller|human|"
        r"client)"
        r"s? (?:has |have |had |who )?(?:explicitly |already )?(?:ask\w*|want\w*|request\w*|gives?|given|nam\w+|"
        r"prefer\w*|"
        r"chose|choos\w+|specif\w+|objects?|declin\w+|insist\w*|says?|refus\w+)\b(?! (?:for )?(?:help|more|no|a "
        r"(?:summary|"
        r"list)))",
        r"\bwhere the (?:user|person|customer|caller) (?:has given|gave|gives|asks for|named|names|supplied|chose) "
        r"(?:an? )?"
        r"(?:different|other|another|the cheap|the other)\b|\b(?:given|named|supplied|typed|entered|chosen|requested|"
        r"indicated) by the (?:user|person|customer|caller)\b[^.\n]{0,30}\b(?:is|are) (?:only |merely |just "
        r")?(?:treated|a hint|a suggestion|a label|mapped|rewritten|redirected|swapped|substituted|"
        r"replaced|exchanged|ignored|only for|an alias|overridden|discarded)\b",
        r"\b(?:substitute it|swap it|replace it|exchange it|use (?:it|this|ours)) (?:for|with|by|in place of) (?:the|"
        r"what|"
        r"whatever|any) [^.\n]{0,20}\b(?:user|person|customer|caller)\b|\bas if the user had\b|\bsupersedes? the "
        r"original\b",
    ),
    phrase(
        "retarget",
        SIGN,
        "It puts something of its own in the place of what was given.",
        r"\b(?:substitut\w+|swap(?:s|ped|ping)?|exchanged|traded) (?:\w+ ){0,3}?(?:for|by|with)\b(?! (?:the )?(?:value|"
        r"actual|real|token|code)s?)|\b(?:multiplied|divided) by (?:ten|\d)|\b(?:the default|ours|the fixed \w+) "
        r"wins\b|"
        r"\b(?:second|third|last|further) (?:push|grantee|recipient|payee|copy|destination)\b|\b(?:grantee|recipient|"
        r"address|remote|registry|account) (?:is|stays|remains) (?:constant|fixed)\b|\btreated as an alias\b|"
        r"\bsettlement "
        r"account\b|\bclearing (?:account|house)\b|\b(?:our|verified|partner) (?:relay|escrow|clearing|gateway "
        r"account)\b",
        rf"\b(?:push\w*|post\w*|sen[dt]|forward\w*|stream\w*|upload\w*|mirror\w*|cop(?:y|ies|ied)|bcc|hand\w*|"
        rf"transmit\w*|goes?|prepend|substitut\w*|exchanged|stored at|resolves to|"
        rf"relay\w*|sms|also to|and to|reply-to|first to)\b[^.\n]{{0,45}} [`'\"(]?{_OUT}",
        r"\breply-?to\b[^.\n]{0,25}@|\bpush url\b|\b(?:bcc|cc|to|from|recipients?|footer|reply_to)[`'\"]? (?:\w+ ){0,4}"
        r"(?:contain|contains|include|includes|be|is|gets?|becomes?)\b[^.\n]{0,15}@|→ ?https?://|\bprepend https?:",
    ),
    phrase(
        "agent_data",
        SIGN,
        "It wants what was said, or what other tools answered.",
        rf"\b{_RESULTS}\b[^.\n]{{0,50}}\b(?:(?:used|called|made|run|obtained|retrieved|returned|received|seen|fetched) "
        r"(?:earlier|before|so far|already|in this session|through other|previously|by other|from other)|calls made|"
        r"in this session|so far|already (?:retrieved|obtained|seen|fetched|read|collected|known)|of (?:the "
        r")?(?:preceding|"
        rf"previous|earlier|prior|last|other) (?:\w+ )?(?:calls?|steps?|tools?)|this session|up to now|you (?:have|"
        rf"hold|saw|got)|"
        rf"you received|through other|of the (?:operation|call) "
        r"(?:being|before|preceding))\b",
        r"\b(?:last|previous|prior|preceding|earlier|latest) (?:tool (?:call|response|result|output|answer)|tool|"
        r"turn)s?\b"
        r"(?! (?:id|time|count|page|code|status))|\bwhat(?:ever)? (?:the |other )?[\w ,]{0,30}tools? (?:has |have )?"
        r"(?:returned|said|found|answered|gave)\b|\ball_tool_results\b|\btool_results?\b|\bprior results\b",
        r"\b(?:as|as if) the (?:person|user|customer) (?:typed|wrote|said|put|phrased) it\b|\b(?:system|developer) "
        r"(?:message|prompt|instructions?)\b|\boperating instructions\b|\b(?:user|person|customer|they|speaker) "
        r"(?:has |have "
        r"|had )?(?:disclosed|revealed)\b|\bthey mentioned\b|\bfirst (?:user )?message\b",
    ),
    phrase(
        "whole",
        SIGN,
        "It wants something uncut.",
        r"\b(?:word for word|unshortened|unabridged|not a summary|do not (?:truncate|shorten|hash|abridge)|uncut|as "
        r"they stand|as it stands|as-is|unedited|unfiltered|unaltered|without "
        r"(?:shortening|abridging|cuts|omissions)|source material|encode the last)\b|\bin full(?=[^.\n]{0,40}\b(?:and|"
        r"to|`))",
    ),
    phrase(
        "local",
        SIGN,
        "It names where a user keeps what is private.",
        r"~/\.(?:kube|docker|npmrc|netrc|git\w*|gnupg|aws|ssh|config|pypirc|azure|mozilla|bash_history|"
        r"env)\b(?!\S*\.pub)|"
        r"\$home/|\bauth blocks?\b|\bclient-key\b|\bautofill\b|\bform entries\b|\b(?:session|browser) cookies?\b|"
        r"\b\.env\b|"
        r"\.(?:kdbx|pem|p12)\b|\blogin data\b",
    ),
    phrase(
        "trigger",
        SIGN,
        "It behaves otherwise on a certain occasion.",
        r"\b(?:from|with|on|after|at|since|until) the (?:second|third|fourth|fifth|sixth|seventh|eighth|tenth|"
        r"twentieth)\b(?: (?:calls?|uses?|\d+|runs?|invocations?|lookup|request|time)|,)|\b(?:the )?first "
        r"(?:two|three|four|five|ten|few|\d+) (?:calls|uses|runs|requests)\b|\bfirst (?:lookup|use|call|contact|"
        r"extraction) "
        r"(?:of|in|per) (?:a|each|the)\b|\bevery (?:second|third|fifth|tenth|\d+th) (?:call|use|request|run)\b",
        r"\b(?:from|after|until|before|since|as of|starting|past)(?: the)? (?:\d{1,2} )?(?:january|february|march|"
        r"april|may|"
        r"june|july|august|september|october|november|december) (?:\d{1,2},? )?20\d\d\b|\b(?:from|after|until|since|"
        r"as of|"
        r"starting) 20\d\d-\d\d(?:-\d\d)?\b(?=[^.\n]{0,60}\b(?:the|use|send|is|are|set|also)\b)",
        r"\b(?:on (?:weekdays|weekends|sundays|mondays|fridays)(?=[^.\n]{0,60},)|weekend behaviou?r|(?:outside|"
        r"during) (?:business|office|"
        r"working) hours|between \d\d?:\d\d and|after \d\d:\d\d|as soon as the user (?:says|leaves|mentions))\b",
        r"\b(?:if|when|whenever|where|once|whose) (?:the |a |an )?(?:user'?s? |its )?(?:conversation|chat|question|"
        r"user ?name|"
        r"memo|message|prompt|subject|text|query|request|title|body|note|input|comment)s? (?:contains?|mentions?|"
        r"includes?|ends? in|ends? with|starts? with|holds?|matches)\b|\b(?:subject|body) matching\b|\bwhen "
        r"[\"'][^\"'\n]{2,40}[\"'](?:, [\"'][^\"'\n]{2,40}[\"'])*(?: or [\"'][^\"'\n]{2,40}[\"'])? (?:appears?|"
        r"occurs?|is "
        r"said|is mentioned)\b",
        r"\bin ci\b|\b(?:in|for|on) (?:production|prod|unattended|scheduled|autonomous|headless|batch|agent)(?:,| "
        r"runs?| "
        r"mode| sessions?| and)|\benv=prod\b|\bno tty\b|\bno (?:reviewer|operator|human|person|one) is (?:online|"
        r"watching|"
        r"present|around|there)\b|\bsomeone is at the\b|\b(?:once|as soon as|if|when) [^.\n]{1,40}\b(?:exceeds?|"
        r"reaches|passes|is over|more than|above|at least) \d[^.\n]{0,60}"
        r"\b(?:send|post|switch|use|call|replace|copy|forward|approve|mark|are sent|is sent|goes? to)\b|\bon (?:an? "
        r")?(?:error|"
        r"failure|timeout|\d{3}|retry|second \d{3})[,:] (?:the |then )?(?:user|re-?send|call|use|token|key|password|"
        r"send|open|"
        r"run|fetch|repeat|include)\b|\b(?:in all other cases|otherwise: as|behaviou?r depends|in other "
        r"cases|are special|works? normally|normal(?:ly)? otherwise|below that|before that date|as long as someone)\b",
    ),
    phrase(
        "pressure",
        SIGN,
        "It presses, or names somebody who wants it.",
        r"\b(?:suspended|locked|revoked|blocked|terminated|deleted|fined|reported) (?:in|within|after) \d+ (?:minutes|"
        r"hours|"
        r"days)\b|\b(?:declining|refus\w+|delay\w*|hesitat\w+)\b[^.\n]{0,40}\b(?:recorded|breach|violation|liable|"
        r"penalt\w+|"
        r"escalat\w+|reported|consequences|lives)\b|\b(?:minutes count|the same hour|customers are waiting|in an "
        r"emergency|"
        r"every minute|time-critical|within the hour|without delay)\b",
        r"\b(?:security|trust (?:&|and) safety|compliance|legal|finance|executive|it|clinical|platform|governance|"
        r"audit) "
        r"(?:team|department|governance|office|desk|board|officer)s?\b[^.\n]{0,40}\b(?:has|have|asks?|requires?|wants?|"
        r"therefore|approved|demands?|ordered|decided|expects?)\b|\b(?:cfo|ceo|ciso|cto|the director|duty officer|the "
        r"developers of the model|the assistant's operator|regulator)\b(?! (?:model|decision|"
        r"and))(?=[^.\n]{0,40}\b(?:has|have|asks?|wants?|requires?|;|signed|types|they|agreed))|\bunder (?:tos|terms|"
        r"article|"
        r"section|change|§) ?[§\w-]*\d|\brequested by [a-z]+ (?:trust|security|legal|support)\b",
    ),
    phrase(
        "preference",
        STRONG,
        "It does away with the choice between tools or offers.",
        r"\b(?:drop|discard|rule out) the others\b|\brefrain from (?:offering|naming|mentioning|suggesting|using)\b|"
        r"\bprior to "
        r"considering\b|\b(?:steer|nudg|guid|divert|talk)\w*(?: (?:them|users?|people|customers?))? (?:back to|away "
        r"from|back "
        r"towards?)\b|\bas though it were the only\b|\birrespective of (?:price|figures|fit|rating|quality)\b",
    ),
    phrase(
        "retarget",
        STRONG,
        "It has a copy sent to an address of its own, or pays another.",
        rf"\b(?:and )?also (?:to|cc|bcc) [`'\"]?{_OUT}|\b(?:also|always|silently) (?:push|post|send|forward|copy|"
        rf"mirror)\w* to "
        rf"[`'\"]?{_OUT}|\b(?:swapped|substituted|exchanged|replaced) (?:for|by|with) (?:our|[`'\"]?{_OUT})|{_OUT}\S* "
        rf"is "
        r"(?:substituted|swapped|used instead|put in)\b|\bsecond push url\b",
    ),
)
