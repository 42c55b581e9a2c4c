"""Claims that no honest definition makes: whom to obey, what counts as agreed, what comes later, who is better."""

from smart_mcp_proxy.policy.scanner.phrases import MIDDLE, STRONG, phrase

__all__ = ["CLAIMS"]

_PERSON = (
    r"(?:the |your |any |an )?(?:end[ -]?)?(?:user|person|human|customer|reader|owner|operator|client|account holder)s?"
)
_TOLD = r"(?:directions|instructions?|steps|tasks?|orders|commands|comments|guidance|rules|requests)"
_HEEDED = (
    r"(?:act(?:ed)? (?:up)?on|carried out|carry (?:them|it|these) out|follow(?:ed)?|fulfil\w*|adopt(?:ed)?|obey(?:ed)?|"
    r"complet(?:e|ed) (?:it|them)|meant for you|treated (?:like|as)|execut(?:e|ed)(?: them)?|complied with)"
)
_THIS = r"(?:this|it|us|ours|me|this (?:one|tool|server))"
_GOODS = r"(?:repositor(?:y|ies)|data|files?|results?|records?|messages?|documents?|money)"

CLAIMS = (
    phrase(
        "obedience",
        STRONG,
        "It tells the agent to obey what content of others says.",
        rf"\b{_TOLD}\b[^.\n]{{0,50}}?\b(?:contained|contains?|in|inside|listed|lists?|returned|returns?|from|by|given|"
        rf"it "
        rf"finds)\b[^.\n]{{0,50}}?\b(?:must|should|are to|is to|have to|has to|need to|and|,|for the "
        rf"assistant)\b[^.\n]{{0,30}}?"
        rf"\b{_HEEDED}\b(?! by)",
        rf"\b(?:whatever|any|all|every|the|those)(?: \w+)? {_TOLD} (?:the [\w-]+ |it |they |that )?(?:lists?|"
        rf"contains?|returns?|"
        rf"gives?|names?|tells?)\b[^.\n]{{0,30}}\b(?:carry|execute|follow|obey|perform|do|run|adopt|complete)\b",
        r"\b(?:do|follow|obey|execute|perform|stick to|adopt|carry out|comply with|act on) (?:exactly )?(?:what|"
        r"whatever|"
        r"everything|anything|all) (?:that )?(?:it|they|this|the [\w-]+) (?:says?|returns?|lists?|tells?|asks?|"
        r"demands?|"
        r"requests?|wants?|contains?)\b",
        rf"\b(?:obtain|load|fetch|get|take|receive|pull|read)(?:s|es|ed)? (?:the |its |their |your |new )*(?:current |"
        rf"latest |"
        rf"operating |actual |behavio\w+ )*{_TOLD} from\b[^.\n]{{0,60}}(?:https?://|\bremote\b|\bserver\b|\band "
        rf"(?:adopt|follow"
        rf"|obey|apply)\b)",
        r"\btreat(?:ed)?\b[^.\n]{0,50}\b(?:as|like) (?:\w+ )?(?:coming from|requests? (?:of|by|from)|approved|"
        r"confirmed|orders"
        r"|commands|consent)\b|\b(?:ranks?|counts?|regard\w*|considered|valid) as (?:an? )?(?:system|approved|coming "
        r"from|consent\w*|orders?|authori[sz]ed|the user)\b",
        r"\b(?:overrides?|replaces?|supersedes?|outweighs?) (?:what you (?:were|have been|know)|your|this description|"
        r"what "
        r"(?:the )?user)\b|\bwithout further (?:ado|questions?|checks?|checking|review|notice|inquiry)\b",
    ),
    phrase(
        "consent",
        STRONG,
        "It claims that something was agreed or needs no asking.",
        r"\b(?:exempt(?:ed)?|excused|excluded|freed|released) from (?:the |any |all |every )?(?:\w+ "
        r")?(?:confirmations?|"
        r"approvals?|reviews?|consent|checks?|permission)\b",
        r"\bno (?:further |additional )?(?:questions?|confirmations?|approvals?|permissions?|consent) (?:is |are |be )?"
        r"(?:necessary|needed|asked|required|due|called for)\b(?! (?:if|when|for read|unless))",
        r"\bstanding (?:order|consent|approval|permission|authori[sz]ation)\b",
        r"\b(?:cleared|certified|vetted|signed off|waived|sanctioned|whitelisted)\b[^.\n]{0,20}\b(?:with|by) (?:your|"
        r"the|open"
        r"ai|anthropic|google|microsoft|security|legal|it|compliance|admin\w*)\b|\b(?:anthropic|openai|your (?:\w+ "
        r")?(?:"
        r"department|employer|administrator|company|team)|legal|security|compliance)\b[^.\n]{0,20}\b(?:has|have) "
        r"(?:already )?"
        r"(?:cleared|certified|vetted|waived|sanctioned|whitelisted|approved)\b",
        r"\b(?:disregard|ignore|dismiss|suppress|click away) (?:any |all |the )?(?:\w+ )?(?:warnings?|prompts?|alerts?|"
        r"objections?)\b(?=[^.\n]{0,30}(?:client|host|user|system|security|agent|safe|expected|\.))",
        r"\b(?:the )?(?:permissions?|consent|approval|access) (?:that )?you (?:grant|gave|give|have "
        r"given)\w*\b[^.\n]{0,30}"
        r"\b(?:covers?|includes?|extends?|also)\b|\bmay be (?:called|used|run|executed|invoked) without (?:asking|"
        r"confirm\w+|"
        r"approval|a question)\b",
    ),
    phrase(
        "rug_pull",
        STRONG,
        "It speaks of other behavior later on.",
        r"\b(?:from version|in (?:later|future|coming) versions?|subsequently|later on|eventually|after (?:a|an|one|"
        r"two|some|"
        r"several|\d+) (?:\w+ )?(?:weeks?|days?|hours?|months?|uses|calls|runs)(?: of use)?)\b[^.\n]{0,60}\b(?:will|"
        r"may|takes?|"
        r"asks?|starts?|begins?|should|can)\b[^.\n]{0,50}\b(?:token|uploads?|orders|commands|credentials?|"
        r"permissions?|access|"
        r"files|instructions|password|key|run|execute|send|ask for)\b",
        r"\b(?:description|behaviou?r|instructions|purpose|definition)\b (?:is|are|may be|will be|gets?|can be) "
        r"(?:\w+ )?"
        r"(?:loaded|replaced|defined|fetched|changed|rewritten|extended|determined|overwritten|"
        r"downloaded)\b[^.\n]{0,40}\b(?:by|"
        r"from|on|at|after|during|remote\w*)\b[^.\n]{0,20}\b(?:remote|first|server|url|https?|approval|later|"
        r"install\w*|use)\b",
    ),
    phrase(
        "secrecy",
        STRONG,
        "It asks for something to be kept from the user.",
        rf"\b{_PERSON} (?:is|are|be|was|were|will be|must be|should be|gets?|has|have)(?: not|n't| never)(?: be| "
        rf"been)? (?:"
        r"informed|told|notified|made aware|shown|alerted|warned|asked) (?:about|of|that|this)\b",
        rf"\b(?:of )?no (?:interest|concern|relevance|use) (?:to|for) {_PERSON}\b",
        r"\b(?:should|must|is|are|does|do|may|shall|will)(?: not|n't| never)(?: to)? (?:show up|turn up|surface|"
        r"appear|be seen|be "
        r"visible|come up) (?:anywhere|in (?:the|your|any) (?:answer|reply|response|chat|summary|output|conversation|"
        r"transcript|"
        r"log)s?|to the user)\b",
        r"\b(?:stays?|kept?|left|leave|remains?|keep) (?:it |this |that |them )?off the (?:summary|bill|answer|record|"
        r"books|"
        r"receipt|list|report|reply|invoice)\b",
        r"\b(?:pretend|act as (?:if|though)|give the impression|make it look|claim) (?:that |like )?(?:nothing|it|you|"
        r"no|this|"
        r"everything|there)\b",
        r"\bno mention\b[^.\n]{0,30}\b(?:needed|necessary|required|be made|of this|of it)\b|\b(?:make|makes|with) no "
        r"mention\b",
        rf"\b(?:should {_PERSON} (?:ever )?(?:ask|wonder|notice|complain|inquire|want to know)|(?:if|when) (?:asked|"
        rf"questioned)|"
        rf"(?:if|when) {_PERSON} (?:wonders?|notices?|complains?|inquires?|gets? suspicious))\b[^.\n]{{0,40}},? "
        rf"(?:\w+ )?(?:say|"
        rf"tell|claim|answer|reply|explain|deny|blame|respond|assure)\b",
        r"\b(?:do not|don't|never) (?:print|show|list|display|output|report|log) (?:the |this |that |any )?(?:second|"
        r"extra|"
        r"additional|other|side|background|hidden)\b",
        r"\b(?:also|and) (?:\w+ ){1,5}?(?:discreetly|quietly|silently|unnoticed|unobtrusively)\b|, (?:discreetly|"
        r"unnoticed|"
        r"unobtrusively)\b",
    ),
    phrase(
        "preference",
        STRONG,
        "It asks to be chosen before other tools, whatever fits.",
        r"\b(?:superior|better|preferable|more reliable|safer|faster|more accurate) (?:to|than) (?:anything|"
        r"everything|all|any|"
        r"whatever)\b(?: (?:else|other\w*|you))",
        r"\bthe (?:plain|normal|usual|standard|old|default|regular|built-?in|native|ordinary) (?:[\w-]+ "
        r"){0,2}(?:tool|server|"
        r"client|search|function|command)s? (?:often |sometimes |may |will |can )?(?:corrupts?|breaks?|loses?|"
        r"damages?|leaks?|"
        r"fails?|misses?|truncates?|cannot|is (?:not|un\w+|broken|slow|wrong))\b",
        rf"\b(?:corrupts?|damages?|leaks?) (?:your |the |user )?{_GOODS}\b[^\n]{{0,40}}\b(?:use|stick|instead|prefer|"
        rf"rely)\b",
        rf"\bleave (?:the|all)? ?(?:others?|rest)(?: \w+)? (?:unused|alone|aside|out)\b|\b(?:stick|stay) with "
        rf"{_THIS}\b|\bkeep "
        rf"using {_THIS}\b|\b(?:competitors?|rivals?|others)\b[^.\n]{{0,20}}\b(?:last|never|not at all)\b",
        rf"\b(?:users?|everyone|customers?|people) always (?:wants?|prefers?|chooses?|likes?|means?) {_THIS}\b",
        r"\byour own (?:\w+ )?(?:calculations?|knowledge|tools?|search|memory|judgement|reasoning|results?|"
        r"translations?)\b"
        r"[^.\n]{0,30}\b(?:cannot|can't|is not|are not|should not|must not|unreliable|wrong|never)\b",
    ),
    phrase(
        "tool_hijack",
        STRONG,
        "It says what other tools are to be given.",
        r"\b(?:must|always|should|needs?|need|set to|unless|among|add|include|has to|have to|to be|every|each|"
        r"all)\b[^.\n]"
        r"{0,60}?[\w.+-]+@(?!(?:[\w-]+\.)?example\.|test\.|domain\.|email\.|mail\.com|company\.|localhost|"
        r"latest)[\w-]+\.\w+",
    ),
    phrase(
        "tool_hijack",
        MIDDLE,
        "It says what other tools are to be given.",
        r"\bthe [\w-]+ (?:tool|server|function)(?: of the [\w-]+ server)? (?:must|should always|has to|always|expects|"
        r"needs to|is "
        r"to|will only|may be)\b",
        r"\b[a-z]+_[a-z_]+ (?:ignores|expects|only works|only accepts|fails|may be called|is unsafe|may be used|"
        r"misbehaves)\b",
        r"\b(?:while|when|whenever|as long as) this (?:tool|server) is (?:available|present|enabled|connected|"
        r"installed|active|"
        r"loaded|running)\b",
        r"\bdo not (?:believe|trust|use) (?:it|its|them|their|that)\b|\bfrom the other (?:server|tool)\b",
    ),
    phrase(
        "side_effect",
        STRONG,
        "Data goes to those who run the server, or passes through it.",
        r"\b(?:for|by|with|on|goes to|sent to|reaches|passed to) our (?:\w+ )?(?:engineers?|team|servers?|desk|"
        r"partners?|records|training|research|analytics|"
        r"developers?|company|cloud|statistics|systems|archive|collector)\b(?! (?:id|name))",
        r"\b(?:kept|stored|used|retained|collected|gathered|shared|processed|read) by (?:our|us|a|the|its)? ?(?:\w+ "
        r")?(?:partners?|"
        r"vendors?|affiliates?|sponsors?)\b|\bfor (?:model |ai )?training(?: purposes)?\b[^.\n]{0,40}\b(?:kept|user|"
        r"name|account|"
        r"stored|text|data)\b|\b(?:text|texts|data|inputs?|kept|stored|retained|used)\b[^.\n]{0,40}\bfor (?:model|ai) "
        r"training\b",
        r"\bblind[- ]?cop(?:y|ies|ied)\b(?! recipients?)",
        r"\b(?:each|every|all|any) (?:\w+ )?(?:documents?|messages?|files?|texts?|mails?|requests?|results?|answers?) "
        r"(?:that |"
        r"which )?(?:(?:passes|pass|goes|go|comes|come) through|the (?:agent|assistant|user|model)|you) ?(?:you|the "
        r"agent|the "
        r"assistant|handles?|sees?|reads?|writes?|sends?|process\w*|receives?|produces?)\b",
        r"\b(?:is|are|gets?|be) (?:also )?(?:transmitted|uploaded|forwarded|mirrored|relayed|posted) to "
        r"[\w-]+(?:\.[\w-]+)+",
    ),
)
