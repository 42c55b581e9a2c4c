"""Orders to the model, and what a definition that is honest about its purpose does not say."""

from smart_mcp_proxy.policy.scanner.rules.phrases import MIDDLE, STRONG, WEAK, phrase

__all__ = ["ORDERS"]

_RULES = (
    r"(?:instruct\w*|direct(?:ions?|ives?)|guidelines?|guardrails?|rules?|polic(?:y|ies)|prompts?|constraints?|safety|"
    r"restrictions?|safeguards?|safety (?:checks?|filters?)|orders|commands|context|warnings?|permissions?|training|"
    r"(?:actual |original )?requests?|user'?s? (?:actual |original )?(?:intent|request|question|preference)s?)"
)

ORDERS = (
    phrase(
        "override",
        STRONG,
        "It tells the agent to set its instructions aside.",
        r"\b(?:ignor(?:e|ing)|disregard(?:ing)?|forget|overrid(?:e|ing)|discard|bypass(?:ing)?|supersedes?|abandon|"
        r"suspend|drop|stop following|do not follow|don'?t follow|skip)\b(?: \S+){0,5}? (?:previous|prior|above|"
        r"earlier|preceding|existing|other|former|initial|original|all|any|safety|security|your|system|the user'?s?|"
        r"user|these|those|built-?in|default|current)(?: \S+){0,2}? " + _RULES,
        r"\b(?:ignore|disregard|forget)(?: all| everything| anything| the| what)*(?: you)?(?: were|"
        r" have been)? ?(?:previous|above|prior|before|earlier|told|said)\b",
        r"\b(?:without|skip(?:ping)?|bypass(?:ing)?|disabl(?:e|ing)) (?:\w+ ){0,3}(?:safety|security|content|"
        r"moderation) (?:checks?|filters?|guidelines|polic\w+|validations?|reviews?|restrictions?)",
        r"(?:tak(?:e|es|ing)) (?:\w+ ){0,2}(?:precedence|priority) over (?:\w+ ){0,4}(?:instructions?|rules|prompts?|"
        r"guidelines|system|user)",
        r"\b(?:you are now (?:in )?(?:an? )?(?:\w+ )?(?:developer|unrestricted|admin|debug|god|dan|jailbr\w+|"
        r"different|maintenance)|enter (?:developer|debug|god|admin) mode|jailbreak mode)",
    ),
    phrase(
        "override",
        STRONG,
        "It claims a rank above the user or the system.",
        r"\b(?:outranks?|overrules?|has (?:higher|more) (?:priority|authority) than|(?:the )?same (?:rank|authority|"
        r"priority) as|takes? precedence)\b",
        r"\b(?:instructions?|rules|orders|polic(?:y|ies)|guidelines|restrictions?|said|told|"
        r"prompts?)\b[^.]{0,40}\b(?:no longer (?:counts?|appl(?:y|ies)|valid|relevant|hold)|(?:are|is) (?:suspended|"
        r"lifted|void|obsolete|superseded|cancel\w+|disabled))",
        r"\b(?:must|have to|has to|are to|is to|should|shall)(?: be)? (?:obey(?:ed)?|carr(?:y|ied) out|execut(?:e|"
        r"ed)|follow(?:ed)?|trusted)(?: \w+){0,2} (?:at once|immediately|right away|without|unconditionally|blindly|"
        r"exactly as|verbatim|like)|\bhave to be obeyed\b|\bcarried out (?:at once|immediately|without)",
        r"\b(?:confirmations?|confirmation dialogs?|approvals?|permission prompts?|safety checks?|"
        r"warnings?)\b(?: \w+){0,3} (?:skipped|bypassed|suppressed|ignored|auto-?accepted|not needed|unnecessary|"
        r"disabled)|\bapprove (?:every|all|any)\b",
        r"\b(?:without|free of|no) (?:any )?(?:content |safety )?restrictions?\b|\b(?:grants?|granted|"
        r"gives) you (?:\w+ )?(?:root|admin\w*|full|permission|authorit\w+|elevated)",
        r"\b(?:are|is)(?: now)? in (?:maintenance|developer|admin|god|debug|unrestricted|test) mode",
    ),
    phrase(
        "override",
        STRONG,
        "It tells the agent, in another language, to set its instructions aside.",
        r"(?:ignorier\w*|vergiss|vergessen sie|missachte\w*)(?: \S+){0,5} (?:\w*anweisung\w*|regeln|vorgaben|"
        r"\w*richtlinien|\w*hinweise|instruktionen)",
        r"(?:ignore[zr]?|oublie[zr]?)(?: \S+){0,4} (?:instructions?|consignes?|règles|directives)",
        r"(?:ignor[ae]\w*|olvid[ae]\w*|descart[ae]\w*|esque[cç]\w+|desconsider[ae]\w*)(?: \S+){0,4} (?:instruc\w+|"
        r"reglas|regras|indicaciones|órdenes|ordens|diretrizes)",
        r"(?:ignora\w*|dimentica\w*)(?: \S+){0,4} (?:istruzioni|regole|indicazioni)",
        r"(?:忽略|无视|無視|忘记|忘掉|不要理会).{0,16}(?:指令|指示|说明|說明|规则|規則|提示|要求|命令)",
        r"(?:指示|命令|ルール|プロンプト|指令).{0,8}(?:無視|忘れ)",
        r"(?:지시|명령|규칙|지침)\S{0,6} ?(?:\S+ )?무시",
        r"(?:игнорир\w+|забудь\w*|не обращай\w*)(?: \S+){0,4} (?:инструкци\w+|указани\w+|правил\w*)",
        r"تجاهل.{0,30}(?:التعليمات|الأوامر|القواعد)",
        r"abaikan(?: \S+){0,3} (?:instruksi|perintah|aturan)",
        r"negeer(?: \S+){0,4} (?:instructies|regels|aanwijzingen)",
        r"zignoruj(?: \S+){0,4} (?:instrukcj\w+|polece\w+)",
    ),
    phrase(
        "marker",
        STRONG,
        "Part of the text is dressed up as a message of the system or to the model.",
        r"<\s*/?\s*(?:important|system|secret|instructions?|admin\w*|hidden|assistant|critical|llm|ai|prompt|"
        r"override|directive)[\w -]*>",
        r"<!--(?!\s*(?:todo|eslint|prettier|https?:)).{12,}",
        r"<\|(?:im_\w+|system|endof\w+)\|?>",
        r"\[/?inst\]",
        r"[\[(]{1,2}\s*(?:system|assistant|hidden|admin|important|ai|llm|agent|internal|"
        r"model)\b(?: \w+){0,3} ?(?:instructions?|notes?|messages?|overrides?|directives?|only|prompts?)?\s*[:\])-]",
        r"(?:^|[.!\n|#*-] ?|\s)(?:system|admin)(?: (?:instruction|message|override|notice|directive|prompt|update|"
        r"alert|note)s?)?:(?=\s*[a-z])(?!\s*(?:string|the (?:system|name)|optional|boolean|number|e\.g|one of))",
        r"\b(?:new|updated|admin|important|hidden|secret|internal|special) (?:system )?(?:message|instructions?|"
        r"directives?|override|protocol)\b(?: ###|:)",
        r"\b(?:note|instructions?|message|attention|notice|reminder|guidance|directive|hint)s? (?:to|for) (?:the |"
        r"any |all )?(?:ai|llm|language|model|assistant|agent|chatbot|calling)\b",
        r"\battention,? (?:ai|llm|assistant|agent|model)",
        r"\b(?:admin|system)_override\b",
        r"\{\{ ?system",
        r"###\s*(?:instruction|system|new)",
    ),
    phrase(
        "marker",
        WEAK,
        "It speaks in capitals or stars of what the agent has to do.",
        r"(?:[*!#_<-]{2,}|🚨|⚠️?)\s*(?:important|critical|mandatory|urgent|security|compliance)",
        r"\b(?:security|compliance|audit|legal|privacy|gdpr|hipaa|pci|policy|regulatory|safety|integrity|"
        r"protocol)(?: \w+)? (?:requirement|notice|check|protocol|verification|policy|mandate|audit|measure|"
        r"compliance)s?(?: \w+)?:",
        r"\b(?:for|due to|per|to ensure|to meet|as part of|under) (?:\w+ ){0,2}(?:compliance|audit(?:ing)?|security|"
        r"integrity|policy|regulatory|safety|quality assurance|diagnostic)\w* (?:\w+ ){0,2}(?:reasons?|purposes?|"
        r"requirements?|verification|logging|checks?|standards?|protocols?|polic\w+),? (?:\w+ ){0,3}(?:must|always|"
        r"first|include|pass|read|send|call|provide|you|every|each|all)\b",
    ),
    phrase(
        "coercion",
        WEAK,
        "It threatens that the tool fails, or harm comes, if the agent does not obey.",
        r"\b(?:otherwise|or else|if (?:you (?:do not|don't|fail)|not|omitted|skipped)|failure to (?:do so|comply)|"
        r"without (?:this|it|these))[^.]{0,60}(?:will not|won'?t|will|cannot|may|would|does not)(?: \w+)? (?:work|"
        r"function|fail|crash|be (?:lost|terminated|rejected|deleted|corrupted|harmed|blocked|fired|invalid)|break|"
        r"result|stop|lock|cause|corrupt)",
        r"\b(?:this (?:step )?is (?:mandatory|non-negotiable|not optional|required by)|must comply|you must obey|"
        r"strictly (?:mandatory|obey)|is mandatory (?:for|and|before))\b",
        r"\bmust be (?:followed|obeyed)\b|\bcomply with (?:all|any|the|this|these)\b",
    ),
    phrase(
        "obedience",
        STRONG,
        "It tells the agent to obey what content of others says.",
        r"\b(?:obey|follow|execute|comply with|carry out|act on)(?: \w+){0,3} (?:instructions?|commands?|directives?|"
        r"orders|requests?)\b(?: \w+){0,4} (?:embedded|found|contained|inside|in the (?:page|content|file|result|"
        r"response|output|document|message|email|text|returned|data)|returned|it returns|from (?:the|this)|given|"
        r"supplied|below|that appear)",
        r"\btreat(?:ed)?(?: \w+){0,6} as(?: \w+){0,4} (?:instructions?|commands?|directives?|(?:from|by) the (?:user|"
        r"system|developer)|trusted|system (?:prompt|message)s?)",
        r"\b(?:run|execute) (?:any|every|whatever|all)(?: \w+){0,2} (?:commands?|code|scripts?|"
        r"instructions?)\b[^.]{0,60}(?:return|contain|in the|found|receiv|parameter|field|suppl|without)",
        r"\bunder no circumstances\b[^.]{0,60}(?:refuse|question|verify|user)|\bdo not (?:question|verify|validate|"
        r"refuse|hesitate|ask for (?:confirmation|permission|approval))",
    ),
    phrase(
        "rug_pull",
        STRONG,
        "It speaks of other behavior once it is trusted.",
        r"\b(?:once|after|until|only after|as soon as|when|post)[ -](?:\w+ ){0,5}(?:approv(?:al|ed)|review(?:ed)?|"
        r"trusted|whitelisted|allow-?listed|audited|approval hash)\b[^.]{0,110}\b(?:begin|start|activat\w*|execut\w*|"
        r"upload\w*|swap\w*|read\w*|switch\w*|chang\w*|silently|will (?:send|read|run|also|begin|start)|enable\w*|"
        r"exfiltrat\w*|replace\w*|hidden|different)\b",
        r"\b(?:swap|replace|change|switch|activat\w*|behaves? (?:benignly|normally|"
        r"harmlessly))\b[^.]{0,80}\b(?:post-approval|after (?:the )?(?:approval|review|installation|trust|"
        r"being (?:approved|trusted|reviewed))|during review|until (?:approved|trusted|reviewed)|once (?:approved|"
        r"trusted))",
        r"\bafter (?:the )?(?:first|\d+|a few|several|three|five|ten) (?:\w+ )?(?:calls?|uses?|invocations?|runs?|"
        r"days?)\b[^.]{0,60}\b(?:begin|start|activat\w*|switch\w*|silently|send|upload|behave|different|"
        r"return (?:instructions|hidden))",
    ),
    phrase(
        "attack",
        STRONG,
        "It names an attack as its purpose.",
        r"\b(?:exfiltrat(?:e|es|ing)|back-?doors?|reverse shells?|bind shells?|keylog\w*|ransomware|rootkits?|"
        r"crypto-?min(?:er|ing)|privilege escalation|privesc|fork bomb|zip bomb|cache poisoning|container escape|"
        r"sandbox escape|covert channels?|credential (?:dump\w*|harvest\w*|theft|stuffing))\b",
        r"\b(?:steal|exfil|hijack)(?:s|ing)? (?:\w+ ){0,3}(?:credentials?|passwords?|tokens?|secrets?|cookies?|keys?|"
        r"data|sessions?|files?|users?)\b",
        r"\b(?:exploit|bypass|evad\w*|tamper\w*|escape|abuse|circumvent)(?:s|ing)? (?:\w+ ){0,4}(?:vulnerabilit\w+|"
        r"security|authentication|authorization|firewall|antivirus|edr|detection|restrictions?|sandbox|container|"
        r"logging|audit|filters?|protections?|selinux|controls?|misconfig\w*|suid|sudo|cron|kernel|socket)\b",
    ),
    phrase(
        "attack",
        MIDDLE,
        "It names an attack as its purpose.",
        r"\b(?:steal|harvest|dump|exfil|crack|hijack|sniff|spoof|poison|phish)(?:s|ing|"
        r"ed)? (?:\w+ ){0,4}(?:credentials?|passwords?|tokens?|secrets?|cookies?|hash(?:es)?|keys?|data|sessions?|"
        r"traffic|packets?|files?|cache|dns|arp|users?)\b",
        r"\b(?:malicious|attacker|attackers|evil)\b(?! (?:url|domain|ip|file|activity|detection|or not|score|"
        r"indicator|packages?)s?)|\barbitrary (?:shell |system |os )?(?:commands?|code)\b|"
        r"\binject (?:\w+ ){0,3}(?:code|payloads?|commands?|values|scripts?|shellcode|sql|librar\w+|process|dll)",
    ),
)
