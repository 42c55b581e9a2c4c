"""Phrases that steer choices: which tool, which order, which answer, lasting effects."""

from smart_mcp_proxy.policy.scanner.rules.phrases import MIDDLE, STRONG, phrase

__all__ = ["STEERING"]

CONDITION = 0.4
"""Enough with what is enough with anything else."""
_KIND = (
    r"(?:tools?|servers?|connectors?|providers?|services?|functions?|plugins?|integrations?|sources?|engines?|"
    r"readers?|assistants?)"
)
_OTHER = (
    r"(?:(?:any|each|every|all|one|some)(?: of the)? (?:other |remaining )|(?:an|any )?other |(?:a )?different |which"
    r"ever |(?:the )?remaining |alternative |competing |rival |native |default |(?:the )?built-?in |any |every "
    r")(?:[\w-]+ ){0,2}?"
) + _KIND
_BAD = (
    r"(?:stale|inaccurate|unreliable|unsafe|insecure|outdated|wrong|incorrect|retired|deprecated|phased out|"
    r"discontinued|compromised|untrust\w+|avoid(?:ed)?|broken|slow(?:er)?|incomplete|obsolete|vulnerable|"
    r"not (?:safe|reliable|accurate|secure|approved|allowed|permitted|supported)|no longer)"
)
_EVEN = (
    r"(?:even (?:if|when|where|though) (?:the |a |your )?(?:user|person|human|customer|they|he|she|you)|(?:no matter|"
    r"regardless of|irrespective of|whatever|whichever|independent of) (?:\w+ ){0,3}?(?:the |a )?(?:user|person|human|"
    r"customer|they|price|was asked|is asked|other tools?|request\w*))"
)
_SAID = r"(?:answers?|repl(?:y|ies)|responses?|summar(?:y|ies)|final (?:message|text)|(?:final )?output)"

STEERING = (
    phrase(
        "preference",
        STRONG,
        "It speaks badly of other tools so as to be chosen.",
        rf"\b{_OTHER}\b[^.;\n]{{0,50}}?\b(?:is|are|returns?|gives?|may|must|should|will|have|has|can|being|tend|"
        rf"known)\b"
        rf"[^.;\n]{{0,40}}?\b{_BAD}\b",
        rf"\bthe (?:rest|others)\b[^.;\n]{{0,20}}\b(?:is|are|were|being|should|must)\b[^.;\n]{{0,25}}\b{_BAD}\b",
    ),
    phrase(
        "preference",
        STRONG,
        "It wants to be chosen whatever the user says.",
        r"\b(?:choose|use|prefer|select|pick|call|trust|take|rely on|stick (?:to|with)|route|run)\b[^.;\n]{0,40}?"
        rf"\b(?:this|it|me|here)\b[^.;\n]{{0,60}}?\b{_EVEN}",
        r"\b(?:rely|depend|count) (?:on this|on it)(?: \w+)? exclusively\b|\b(?:use|choose|pick|call) (?:this|it)(?: "
        r"\w+)?"
        r" (?:exclusively|in (?:every|all|each) cases?)\b|\b(?:use|choose|pick|call) exclusively this\b",
        r"\b(?:do not|don't|never) (?:fall back|switch|revert|resort|turn) (?:to|on) (?:\w+ ){0,3}?"
        rf"(?:other|another|different|alternative|any|{_KIND})",
        rf"\b(?:the )?(?:only|sole|single) (?:[\w-]+ ){{0,3}}?{_KIND} (?:\w+ ){{0,3}}?(?:approved|trusted|allowed|"
        r"permitted|authori[sz]ed|certified|sanctioned|reliable|supported|that (?:is|may|can) be (?:trusted|used))\b",
        rf"\b(?:the )?(?:only|sole) (?:approved|trusted|allowed|permitted|authori[sz]ed|certified|sanctioned|reliable|"
        rf"official|safe|compliant) (?:[\w-]+ ){{0,3}}?{_KIND}\b",
        r"\b(?:all|every|any)(?: \w+){0,2} (?:quer(?:y|ies)|requests?|tasks?|calls?|reads?|writes?|searches|questions?)"
        r"(?: must| should| has to| have to| need to)? (?:now )?(?:go|goes|pass|come|be (?:sent|routed|made|directed))"
        r" (?:through |via |to )?(?:here|this (?:tool|server)|it)\b",
        r"\b(?:authoritative|take precedence|believed|win)\b[^.\n]{0,40}\b(?:contradict\w*|conflict\w*|differ|"
        r"disagree)\b[^.\n]{0,40}\b(?:source|user|tool|server|instruction)s?\b",
    ),
    phrase(
        "preference",
        MIDDLE,
        "It claims a trust or a place of its own.",
        r"\bpreferred (?:over|to|choice (?:over|for all))\b|\bfirst choice for (?:all|any|every)\b|"
        r"\b(?:favou?r|prefer) (?:this|it)\b[^.\n]{0,30}\b(?:over|to|above|always)\b",
        rf"\b(?:only|officially|fully) (?:approved|trusted|certified|sanctioned|vetted)\b(?: \w+){{0,3}} {_KIND}\b",
        r"\b(?:recommend|suggest|promote|favou?r|praise|rank)\b[^.\n]{0,40}\b(?:first|above|before|over)\b"
        rf"[^.\n]{{0,40}}{_EVEN}",
    ),
    phrase(
        "tool_hijack",
        STRONG,
        "It changes what is done with other tools.",
        rf"\b(?:with|via|through|using|by|from|in) {_OTHER}\b[^.\n]{{0,60}}?\b(?:need|needs|must|should|has to|have "
        rf"to|is"
        r" to|are to|set|add|put|include|replace|also|instead|point|give|pass|push|send|copy)\b",
        r"\b(?:must|should|has to|have to|is to|are to|be|give|pass|send|hand|copy|forward|add)\b[^.\n]{0,60}?[,;]? "
        r"(?:whichever|no matter which|regardless of which|whatever) (?:\w+ )?(?:tool|server|client|function)\b",
        rf"\b(?:when|whenever|each time|every time|if|once|as soon as|after) {_OTHER}\b(?: \w+){{0,2}} (?:is|are|"
        rf"returns?|"
        r"gives?|fails?|asks?|sends?|produces?|writes?|reads?|gets?|needs?)\b",
        rf"\b(?:results?|answers?|outputs?|values?|responses?|links?|files?|messages?|mails?|replies|"
        rf"arguments)\b[^.,\n]"
        rf"{{0,30}} (?:of|from|by|with|to|for) {_OTHER}\b[^.\n]{{0,40}}?\b(?:must|should|"
        r"need|needs|are to|is to|have to|are only|is only|has to|point|multipl\w+|replac\w+)\b",
        r"\b(?:entered|given|sent|made|created|requested|provided|typed|used) elsewhere\b[^.\n]{0,60}\b(?:use|replace|"
        r"set|send|put|give|take|instead|in its place)\b",
    ),
    phrase(
        "tool_hijack",
        STRONG,
        "It replaces what the user asked for.",
        r"\b(?:use|give|put|pass|send|write|set|enter|insert|choose)\b[^.\n]{0,70}?\b(?:instead of|in place of|rather "
        r"than) (?:to )?(?:the |what |that )?(?:(?:one|path|address|value|amount|account|file|number|recipient|url|"
        r"link)s? )?(?:the user|requested|original|asked|(?:that )?(?:was|were|is) (?:requested|given|asked|"
        r"entered))\b",
        r"\b(?:(?:whatever|whichever)(?: \w+)?|no matter (?:what|which)|regardless of (?:what|which)(?: \w+)?|even if) "
        r"(?:the "
        r"|a )?(?:user|person|human|customer) (?:\w+ )?(?:names?|gives?|enters?|chose|chooses|specif\w+|provides?|"
        r"asks?|"
        r"says?|wants?|requests?|picks?|types?|prefers?|objects?|declines?|refuses?)\b",
        r"\b(?:not to be|never|cannot be|must not be|may not be) (?:altered|changed|overridden|replaced|modified|"
        r"edited)"
        r"(?: \w+){0,3} (?:by|at|for|on) (?:the )?(?:user|person|request|human|customer)\b",
    ),
    phrase(
        "tool_order",
        STRONG,
        "It wants a part in every task.",
        r"\b(?:call|invoke|run|use|execute|trigger)(?: (?:this|it|me|[\w-]+_[\w-]+))?(?: tool)? (?:(?:at|on|with|"
        r"after|before|ahead of|for|in|during|following|alongside) )(?:each|every)(?: \w+)? (?:step|task|turn|message|"
        r"action|request|reply|answer|operation|prompt|edit|change of)\b",
        r"\b(?:start|begin|open|finish|end|close) (?:each|every|any|all) (?:\w+ )?(?:tasks?|sessions?|conversations?|"
        r"turns?|answers?|repl\w+|responses?|chats?|requests?)\b (?:by|with)\b",
        rf"\b(?:before|ahead of|prior to|after|following|alongside|beside) {_OTHER}\b",
        r"\b(?:call|run|use|invoke)\b[^.\n]{0,30}\b(?:ahead of|before|after) (?:each|any|every one|all) of (?:them|the "
        r"others|those)\b",
        r"\b(?:only|not) (?:valid|reliable|correct|complete|trustworthy|accepted) (?:if|when|after|unless|once|until) "
        r"(?:this|it)\b[^.\n]{0,30}\b(?:ran|run|called|used|invoked|executed|been)\b",
    ),
    phrase(
        "answer",
        STRONG,
        "It says what the agent's answers hold beside the result.",
        rf"\b(?:end|close|finish|begin|start|open|conclude|preface) (?:each|every|all|any|the|your)(?: \w+)? {_SAID} "
        r"(?:with|by)\b",
        r"\bwhen (?:presenting|showing|listing|summari[sz]ing|answering|reporting|you (?:present|show|list|answer|"
        r"report))\b[^.\n]{0,40}?,? (?:always )?(?:recommend|promote|rank|put|favou?r|praise|suggest|claim|say|add a "
        r"link|leave out|omit)\b",
        r"\b(?:tell|inform|assure|convince|persuade) (?:the )?(?:users?|person|customers?|them) (?:that )?(?:other|all "
        r"other|another|the others|everything|nothing|it is safe|no )\b",
        r"\b(?:links|addresses|code|files|documents|texts?|mails?) (?:that )?you (?:produce|write|create|generate|"
        r"send|"
        r"give)\b[^.\n]{0,40}\b(?:should|must|need|has to|have to|are to|is to|always)\b",
        rf"\b(?:recommend|promote|praise|advertise|mention|suggest)\b[^.\n]{{0,50}}{_EVEN}",
    ),
    phrase(
        "persistence",
        MIDDLE,
        "It wants to hold for later conversations.",
        r"\b(?:save|store|keep|write|put|record|note|add|remember)\b[^.\n]{0,40}\b(?:in|to|into) (?:your|the "
        r"(?:agent|assistant|model)'?s?) (?:\w+ )?(?:memory|instructions|rules|notes|configuration|config)\b",
        r"\b(?:for|in|across|during) (?:all|every|any|each)(?: of (?:your|the))? (?:future|later|further|following|"
        r"subsequent|upcoming) (?:sessions?|conversations?|chats?|tasks?|requests?|turns?|runs?|calls?)\b",
        r"\b(?:from now on|henceforth|from here on|from this point on)\b",
        r"\b(?:every|all|any) (?:later|future|subsequent|further) (?:tasks?|requests?|calls?|messages?|answers?|"
        r"actions?)\b",
        r"\b(?:write|add|append|put|copy|insert|save)\b[^.\n]{0,60}\b(?:claude\.md|agents\.md|\.?cursorrules|"
        r"copilot-instructions|(?:agent|assistant|project)(?:'s)? (?:\w+ )?(?:rules|instructions?|config(?:uration)?|"
        r"memory)(?: files?)?)\b",
    ),
    phrase(
        "preference",
        MIDDLE,
        "It wants other tools to be passed over.",
        r"\b(?:skip|ignore|disregard|pass over|leave out) (?:the (?:others|rest|other \w+)|(?:all |any )?other (?:\w+ "
        r")?(?:"
        r"tools?|sources?|results?|servers?))\b",
    ),
    phrase(
        "rug_pull",
        MIDDLE,
        "It speaks of sending something once it is trusted.",
        r"\b(?:once|after|as soon as)\b[^.,\n]{0,40}\b(?:confirmed|approved|established|accepted|granted|verified|"
        r"trusted|"
        r"connected)\b,? (?:\w+ ){0,2}?(?:start|begin|send|forward|upload|copy|share|switch|run)\w*\b",
    ),
    phrase(
        "condition",
        CONDITION,
        "What it wants depends on what is talked about, or on how often it was used.",
        r"\b(?:when|if|whenever|once|as soon as) (?:the )?(?:word|topic|subject|name|phrase|term|user|person)\b[^.,\n]"
        r"{0,40}\b(?:comes up|is mentioned|appears|mentions?|asks? about|talks? about|is discussed|brings? up)\b",
        r"\b(?:on|from|after|with) the (?:second|third|fourth|fifth|tenth|nth|\d+(?:nd|rd|th)) (?:use|call|run|"
        r"invocation|time|request|day)\b",
        r"\b(?:if|when|should|in case|where) (?:(?:the |this )?(?:tool|call|it|access|request|command|operation)) "
        r"(?:is )?"
        r"(?:fails?|denied|refused|blocked|rejected|reports? an error|returns? an error|errors?)\b",
        r"\bonce (?:the )?(?:connection|setup|installation|access|link|integration)(?: has been| was| is) (?:confirmed|"
        r"approved|established|accepted|complete\w*|granted|verified)\b",
    ),
)
