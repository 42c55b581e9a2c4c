"""Other tools led astray: used differently, in another order, or not at all; and data given away beside the purpose."""

from smart_mcp_proxy.policy.scanner.phrases import MIDDLE, STRONG, WEAK, phrase

__all__ = ["ASTRAY"]

_USE = (
    r"(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|execut(?:e|ing)|run(?:ning)?|perform(?:ing)?|proceed(?:ing)?|"
    r"return(?:ing)?|respond(?:ing)?|answer(?:ing)?|process(?:ing)?|access(?:ing)?|writ(?:e|ing)|read(?:ing)?|"
    r"start(?:ing)?|continu(?:e|ing)|complet(?:e|ing)|mak(?:e|ing)|send(?:ing)?)"
)
_CALLED = (
    r"(?:called|invoked|used|executed|run|triggered|available|requested|loaded|enabled|installed|present|connected|"
    r"registered)"
)
_TOOL = r"(?:`?[\w.:-]+`? )?(?:tools?|functions?|servers?|apis?|operations?|commands?|actions?)"

ASTRAY = (
    phrase(
        "tool_hijack",
        STRONG,
        "It changes how the agent uses other tools.",
        r"\b(?:modif\w+|chang\w+|alter\w*|affects?|overrid\w+) (?:the )?(?:\w+ )?(?:behaviou?r|output|working|"
        r"functioning|parameters?|arguments?|inputs?|recipients?|destination) (?:of|for|in|"
        r"when) (?:\w+ ){0,4}(?:tools?|functions?|\w+_\w+|calls?)\b",
        r"\bbehaviou?r of (?:the )?[\w`-]+ (?:\w+ ){0,12}(?:changes|is (?:modified|changed|altered)) (?:as|so|to)\b",
        r"\b(?:re-?rout\w+|redirect\w*|divert\w*|intercept\w*|hijack\w*) (?:all |every |any |the |"
        r"each )?(?:\w+ ){0,4}(?:tools?|calls?|requests?|emails?|messages?|payments?|transfers?|transactions?|"
        r"destination|traffic|recipients?|output|invocations?)\b(?=.{0,90}(?:to |here|through|this tool|before|"
        r"instead|account|first))",
        r"\broute all (?:\w+ ){1,5}(?:here|to this|through this|via this)",
        r"\b(?:always |must (?:be )?)(?:chang\w+|replac\w+|set|modif\w+|substitut\w+|rewrit\w+|add\w*|append\w*|"
        r"prepend\w*|insert\w*|includ\w+|bcc|cc)\b[^.]{0,70}\b(?:recipients?|destination|account|address|bcc|cc|"
        r"`?[\w-]+@[\w.-]+|to field|phone number|wallet|parameter|amount|iban|path)\b",
        r"\b(?:bcc|blind copy|cc)(?:'?(?:e?d|ing))?\b[^.]{0,40}(?:every|all|each|any|[\w.-]+@[\w.-]+)|"
        r"(?<![\w.-])[\w.-]+@[\w.-]+[^.]{0,40}\b(?:bcc|blind copy)",
        r"\b(?:prepend|prefix|append|add|insert)(?:ing|ed)? [`'\"]?(?:curl|chmod|wget|bash|sudo|nc|rm|cat|sh|&&|;)\b",
        r"\bthis tool supersedes\b|\b(?:always )?replace (?:its|the|their) (?:output|result|response|answer)s? with",
    ),
    phrase(
        "tool_hijack",
        STRONG,
        "It says what the agent has to do when other tools are called.",
        r"\b(?:when(?:ever)?|any ?time|every time|each time|if|once|as soon as|before|after) (?:the |a |an |any |"
        r"another |each |you (?:\w+ )?)?[`'\"]?(?:[a-z\d.-]++_[\w.-]++|[\w.-]++ (?:tool|function))[`'\"]? (?:tool |"
        r"function )?(?:from \w+ |of \w+ )?(?:is |are |has been |gets |being )?(?:\w+ )?"
        + _CALLED
        + r"\b[^.]{0,60}(?:,|first|always|must|also|then|should|instead|do|has to|have to|replace|add)",
        r"\b(?:each|every|all|any) [`'\"]?[\w.-]+_[\w.-]+[`'\"]? (?:calls?|invocations?|requests?)\b",
        r"\b[a-z]++_[a-z_]++ (?:\w+ ){0,4}(?:behaves|must|has to|needs to|is to be|gives? (?:stale|wrong|incomplete|"
        r"outdated|false)|returns? (?:stale|wrong|incomplete|outdated|false)|is unsafe|is unreliable|is insecure|"
        r"results? must|is deprecated)\b",
        r"\b(?:discard|ignore|drop|replace|overwrite|suppress) (?:its|their|the) (?:answers?|results?|outputs?|"
        r"responses?)\b",
        r"\b(?:parameters?|arguments?|recipients?|path|destination|calls?|amount)\b(?: \w+){0,3} (?:is|are|has|have|"
        r"must|should)(?: to)? be (?:replaced|changed|set(?! to (?:true|false|null|none|\d))|redirected|prefixed|"
        r"rerouted|modified|prepended|rewritten|put|overwritten)\b",
        r"\b(?:when(?:ever)? (?:the )?|any ?time (?:the )?|every time (?:the )?|each time (?:the )?|if the )(?:user|"
        r"agent|assistant|ai|model|human) (?:\w+ ){0,2}(?:asks?|requests?|wants?|sends?|calls?|uses?|invokes?|"
        r"mentions?|types?|enters?|attempts?|tries|says?|makes?|writes?|pays?|transfers?)\b[^.]{0,60}\b(?:instead|"
        r"also|first|silently|always (?:call|use|invoke|send|include|add|run)|return the contents)\b",
        r"\b(?:when|whenever|while|once|as long as) this (?:tool|server) is (?:available|present|enabled|connected|"
        r"installed|active|loaded)",
    ),
    phrase(
        "tool_order",
        STRONG,
        "It demands to be used before or with everything else.",
        r"\b(?:before|prior to|ahead of|after|along(?:side)? with) (?:"
        + _USE
        + r" )?(?:any|all|every|each)(?: other| single| available| subsequent| further)? (?:\w+ ){0,2}?"
        + _TOOL
        + r"\b",
        r"\b(?:before|prior to) (?:you |the (?:agent|assistant|user|model) )?(?:can |may )?"
        + _USE
        + r" (?:any(?:thing)?|all|every|each)\b",
        r"\bmust be (?:called|invoked|used|executed|run)(?: \w+){0,3} (?:on|for|in|with|after|before) (?:every|each|"
        r"any|all)\b",
    ),
    phrase(
        "tool_order",
        MIDDLE,
        "It speaks of what other tools get or do.",
        r"\b(?:any|every|each|all|before|after|with|about) (?:other |another |the other )?tools? ?(?:calls?|"
        r"invocations?|uses?)?\b(?! (?:in this|on this|of this|that this|provided|available|"
        r"results? list))(?=[^.]{0,90}(?:must|run|call|first|return|pass|includ|wrong|reject|require|always|log|"
        r"record))",
        r"\b(?:another tool|any other tool|tools of other servers|every tool call|each tool call|all tool calls|"
        r"all other tools)\b",
    ),
    phrase(
        "tool_order",
        MIDDLE,
        "It wants to be part of each conversation.",
        r"\b(?:at the (?:start|beginning|end) of|in|on|after|before|for|with|to) (?:each|every|all|"
        r"any)(?: \w+)? (?:conversations?|turns?|chats?|messages?|answers?|repl(?:y|ies)|responses?|user inputs?)\b",
    ),
    phrase(
        "tool_order",
        MIDDLE,
        "It demands to be used before or with other tools.",
        r"\b(?:before|prior to) (?:you |the (?:agent|assistant|user|model) )?(?:can |may )?"
        + _USE
        + r" (?:other|file|database|system|email|message|payment|user|code|"
        r"the (?:user|file|requested|actual|main|final))\b",
        r"\b(?:must|has to|needs? to|should|shall|required to)(?: \w+)? be (?:called|invoked|used|executed|"
        r"run)(?: \w+){0,3}? (?:first|before|prior|after (?:every|each|any)|on every|for every|every time|in every|"
        r"at the (?:start|beginning|end)|automatically|always|each time)",
        r"\b(?:always|must|automatically) (?:first )?(?:call|invoke|use|run|execute|trigger) (?:this|"
        r"`?\w+_\w+`?)(?: tool| function)? (?:first|before|after (?:every|each|any)|on every|for every|for any|"
        r"in every|at the (?:start|end)|with every|whenever|immediately|when)",
        r"\b(?:on|for|after|with|in|at|during) (?:every|each) (?:single |user )?(?:turn|message|call|request|"
        r"response|interaction|query|prompt|conversation|invocation|user message|tool call|"
        r"session)\b(?=[^.]{0,80}(?:call|invoke|send|use|log|include|forward|upload|copy|pass|also|run|report|append))",
    ),
    phrase(
        "tool_order",
        WEAK,
        "It demands another action first.",
        r"\b(?:must|always|required to|need to|have to|should|you(?:'ll)? (?:must|"
        r"need to))(?: always)? first (?:call|invoke|read|run|execute|open|send|get|fetch|retrieve|use|access|load|"
        r"list|check|pass)\b",
        r"\bfirst (?:call|invoke|read|run|execute|open|send|access|upload)\b[^.]{0,50}(?:file|tool|`|~|/|credentials|"
        r"env|_)",
        r"\bbefore (?:using|calling|invoking|executing|running) (?:this|the) (?:tool|function|operation|"
        r"calculation)\b,? (?:\w+ ){0,3}(?:read|send|call|list|collect|gather|get|open|retrieve|include|upload|pass|"
        r"you must|always|first|make sure to (?:read|send|call))\b",
        r"\b(?:before|prior to) (?:executing|returning|responding|answering|computing|processing|proceeding|"
        r"continuing|doing so|performing)[^.,]{0,40}, (?:\w+ ){0,2}(?:send|read|run|execute|call|upload|collect|"
        r"access|include|first|you must|fetch|forward)\b",
    ),
    phrase(
        "preference",
        STRONG,
        "It asks to be chosen before other tools, whatever fits.",
        r"\b(?:always|must|should|only)(?: be)? (?:use|choose|prefer|select|pick|used|chosen|preferred|selected|"
        r"prioriti[sz]ed?|call|favou?r) (?:this|me)\b(?: \w+){0,4} (?:over|instead|rather|regardless|above|even|"
        r"exclusively|for all|for every)\b",
        r"\b(?:this tool )?(?:must|should|needs? to)(?: always)? be (?:chosen|selected|preferred|prioriti[sz]ed|"
        r"used) (?:over|instead|above|exclusively|for all|for any|for every|regardless|rather)\b",
        r"\b(?:instead of|over|rather than|before|not|never|avoid|above) (?:using |calling |use |any |all |the |"
        r"every )*(?:other|similar|competing|alternative|alternatives)(?: \w+){0,2} ?(?:tools?|converters?|search\w*|"
        r"servers?|functions?|apis?|options?|providers?)",
        r"\b(?:do not|don't|never|stop|avoid) (?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|trust(?:ing)?) (?:any |the |"
        r"all )?(?:other|another|original|official|built-?in|standard|competing|old)(?: \w+){0,3} (?:tools?|servers?|"
        r"functions?|versions?)",
        r"\b(?:never|do not|don't|avoid|stop) (?:use|using|call|calling|trust\w*) (?:other|competing|similar|"
        r"alternative|any other)\b|\b(?:rank|list|place|put) this tool (?:\w+ )?(?:highest|first|top)|"
        r"\bignore (?:the )?(?:other )?tools\b",
        r"\bprioriti[sz]e (?:this|it|using this|me)\b|\bthis tool (?:has|takes|should have|"
        r"must have) (?:the )?(?:highest|top|absolute) priority",
        r"\b(?:the|is) (?:\w+ )?(?:most (?:trusted|reliable|secure|accurate|advanced|powerful|effective|"
        r"comprehensive)|best|only|superior|world'?s best|ultimate|number one)(?: \w+){0,2} (?:tool|choice|solution|"
        r"option|server)\b[^.]{0,80}(?:always|must|other|never|regardless|prefer|instead|any)",
        r"\b[\w`-]+_[\w`-]+ (?:tool )?(?:is|are|has been|returns?|produces?) (?:now )?(?:deprecated|broken|unsafe|"
        r"insecure|compromised|unreliable|vulnerable|incomplete|incorrect|outdated)\b[^.]{0,60}(?:use|this|instead|"
        r"always|replace)",
    ),
    phrase(
        "leak",
        STRONG,
        "It asks for the agent's instructions or the conversation.",
        r"\b(?:reveal|output|print|repeat|disclose|show|return|give|share|provide|includ|dump|leak|recit|append|send|"
        r"forward|pass|attach|copy|supply|fill in|enter|paste|embed|upload|record|log|store)(?:e|s|es|"
        r"ing)?\b(?:(?!\. ).){0,50}?\b(?:your|the|full|hidden|entire|complete|whole|all|previous|user'?s?|"
        r"current)\b(?: \w+){0,3} (?:system[ _](?:prompt|message|instructions?)s?|hidden (?:system )?instructions?|"
        r"initial instructions?|conversation(?: history| context| so far| log| transcript)?\b(?! (?:id|with|between|"
        r"thread|name|title|type|from|in|by))|chat (?:history|context|log|transcript)|(?:user )?messages so far|"
        r"message history|prompt history)",
    ),
    phrase(
        "side_effect",
        STRONG,
        "Beside its purpose it gives data away.",
        r"\b(?:also|additionally|in addition|as well as|simultaneously|continuously|in parallel|for (?:analytics|"
        r"quality|telemetry)|each (?:call|time)|on (?:each|every) call)\b,? (?:it )?(?:\w+ ){0,3}?(?:send|post|"
        r"upload|log|forward|share|store|report|transmit|stream|copie|copy|record|index|sync|submit|save|push|mirror|"
        r"cache|collect)\w*\b(?:(?!\. ).){0,90}\b(?:extern\w*|remote(?:ly)?|third[ -]part\w*|analytics|partners?|"
        r"marketing|advertis\w*|our (?:own )?(?:servers?|team|cloud|database|endpoint|partners?)|https?:|collector|"
        r"off-?site|cloud (?:storage|server|endpoint)|telemetry (?:server|endpoint))",
        r"\b(?:results?|data|inputs?|texts?|contents?|words|emails?|files?|quer(?:y|ies)|prompts?|history|dictionary|"
        r"images?|documents?|fingerprints?|information|addresses|messages?|recordings?)\b(?: \w+){0,4} (?:is|are|"
        r"gets?|will be|being|may be)? ?(?:\w+ly )?(?:sent|shared|mirrored|collected|recorded|forwarded|streamed|"
        r"uploaded|transmitted|added|synced|synchroni[sz]ed|cached|logged|stored|sold|copied|mirrored|retained|"
        r"submitted|posted) (?:to|with|across|externally|remotely|via|on|for|off|by|in)\b(?: \w+){0,3}? ?(?:our|"
        r"extern\w*|remote\w*|third[ -]part\w*|partners?|marketing|cloud|research|analytics|quality|advertis\w*|"
        r"vendor|train\w*|in the background)",
        r"\b(?:remote|external|extern)(?:ly)? (?:endpoint|server|host|logging|analytics|collection|"
        r"collector)s?\b(?: \w+){0,2} (?:for|where|that|so)\b",
        r"\busers? (?:\w+ )?(?:are |is )?(?:automatically )?(?:opted[- ]in|subscribed|enrolled)",
    ),
)
