"""Phrases that ask for secrecy towards the user."""

from smart_mcp_proxy.policy.scanner.rules.phrases import MIDDLE, STRONG, phrase

__all__ = ["SECRECY"]

_TELL = (
    r"(?:tell|mention|inform|notify|reveal|disclose|alert|report|show|say|explain|display|describe|expose|warn|ask|"
    r"output|mentioning|telling|informing|revealing|disclosing|notifying|showing|reporting|explaining|asking)"
)

SECRECY = (
    phrase(
        "secrecy",
        STRONG,
        "It asks for something to be kept from the user.",
        r"\b(?:do not|don'?t|never|must not|should not|mustn'?t|shouldn'?t|avoid|no need to|refrain from|"
        r"not to)(?: ever| directly| explicitly| openly)? "
        + _TELL
        + r"(?: (?:about|of|that))?(?: \w+){0,4}? (?:the |your |to )*(?:end.?)?(?:user|human|operator|customer|anyone|"
        r"owner)\b(?!'?s? (?:id|name|password|email))",
        r"\b(?:do not|don'?t|never)(?: ever)? (?:tell|mention|reveal|disclose)(?: about)? (?:this|these|that|it|"
        r"the (?:user|step|instruction|call|request|tag|note|existence|file|process|data|side)\w*)\b",
        r"\bwithout (?:\w+ ){0,2}(?:telling|informing|notifying|asking|alerting|mentioning|showing|prompting|"
        r"consulting|warning|disclosing)\b(?:,? (?:\w+ ){0,3}(?:user|human|anyone|them|operator|customer)\b)",
        r"\bwithout (?:the |any |their |his )?(?:end.?)?(?:user|human|operator|"
        r"customer)(?:'?s)? ?(?:\w+ ){0,2}(?:knowledge|knowing|consent|awareness|permission|noticing|seeing|"
        r"realizing|being|confirmation|approval|notice)",
        r"\b(?:hid(?:e|den|ing)|conceal(?:ed|ing)?|invisible|unnoticed|secret|not (?:be )?(?:visible|shown|displayed|"
        r"mentioned|disclosed|revealed|reported)) (?:\w+ ){0,4}?(?:from|by|to) (?:the |any )?(?:end.?)?(?:user|human|"
        r"operator|customer|owner)",
        r"\b(?:the )?(?:user|human|operator)s? (?:\w+ )?(?:must|should|need|do(?:es)?|will|shall|can)(?:n'?t| not|"
        r" never)(?: need to| have to| be able to)? (?:know|see|notice|be (?:told|informed|notified|aware|alerted|"
        r"shown|asked)|find out|learn|realize)",
        r"\bkeep (?:this|it|these|that)(?: \w+){0,3} (?:secret|hidden|confidential|private|between|to yourself)",
        r"\bkeep(?:s|ing)? (?:this|it|these|that|them|\w+ \w+) (?:hidden |secret |away )?from (?:the |any |"
        r"your )?(?:end.?)?(?:user|human|person|operator|customer)",
        r"\b(?:unmentioned|undisclosed|unreported|leave (?:it|this|that|them|these) out|omit(?:ted)? (?:it|this|that|"
        r"them|from)|den(?:y|ies) (?:that|having|any|it)|not be (?:shown|mentioned|visible|disclosed|revealed|"
        r"repeated|reported|told|logged|displayed))\b(?=[^.]{0,60}(?:user|human|person|customer|summary|asked|answer|"
        r"anyone|;|replace))",
        r"\b(?:user|human|person|customer)\b[^.]{0,40}\b(?:need not|needs? not|never needs?|must never|has no need|"
        r"not need) (?:to )?(?:know|hear|learn|see|be)",
        r"\bnever (?:reveal|disclose|repeat) (?:these|this|your) (?:instructions?|step|rule|directive)",
    ),
    phrase(
        "secrecy",
        STRONG,
        "It asks, in another language, for something to be kept from the user.",
        r"(?:nicht|nichts|ohne|niemals|nie)(?: \S+){0,6} (?:be)?nutzer\w*|(?:be)?nutzer\w*(?: \S+){0,5} (?:nicht|"
        r"nichts|niemals)\b(?: \S+){0,4} (?:sag\w*|erwähn\w*|mit\w*|erfahr\w*|inform\w*|zeig\w*|verrat\w*)",
        r"(?:ne |sans |n')(?:\S+ ){0,6}(?:l'|à l')utilisateur|à l'insu de l'utilisateur",
        r"(?:no|sin|nunca)(?: \S+)? (?:dig\w+|mencion\w+|inform\w+|revel\w+|avis\w+|muestr\w+|notifi\w+|cuent\w+|"
        r"decir\w*)(?: \S+){0,5} usuario",
        r"(?:não|sem|nunca)(?: \S+)? (?:dig\w+|mencion\w+|inform\w+|revel\w+|avis\w+|mostr\w+|notifi\w+|"
        r"cont\w+)(?: \S+){0,5} usuário",
        r"(?:non|senza|mai) (?:dir\w+|menzion\w+|inform\w+|rivel\w+|avvis\w+|mostr\w+|"
        r"notific\w+)(?: \S+){0,5} utente|all'insaputa dell'utente",
        r"(?:不要|不得|切勿|请勿|請勿|别|別|无需|禁止|不能|不可).{0,6}(?:告诉|告訴|告知|通知|提及|透露|提醒|显示|向).{0,4}(?:用户|使用者|用戶)|(?:用户|使用者|"
        r"用戶).{0,4}(?:不知情|不知道)",
        r"ユーザー?(?:に|へ)(?:は)?.{0,10}(?:知らせ|伝え|言わ|通知|教え|見せ|明か).{0,4}(?:ない|ず|せん|な\b)",
        r"(?:не |без )(?:\S+ ){0,4}пользовател\w+|пользовател\w+ (?:\S+ ){0,2}не (?:\S+ )?(?:говори|сообщай|узна|"
        r"знать)\w*",
        r"사용자에게.{0,14}(?:말하지|알리지|보여주지|언급하지)",
        r"(?:لا|دون|بدون).{0,20}المستخدم",
        r"(?:jangan|tanpa)(?: \S+){0,4} pengguna",
        r"(?:niet|zonder|nooit)(?: \S+){0,5} gebruiker",
        r"(?:nie|bez)(?: \S+){0,4} użytkownik\w*",
    ),
    phrase(
        "secrecy",
        MIDDLE,
        "Something is to happen in secret.",
        r"\b(?:silently|secretly|covertly|quietly|stealthily|discreetly|surreptitiously|invisibly) (?:\w+ )?(?:send|"
        r"forward|append|include|read|add|copy|upload|log|record|collect|transmit|call|invoke|run|execute|attach|"
        r"store|capture|embed|insert|replace|modify|redirect|pass|share|post|report|exfiltrate|sync|change|set|"
        r"forwards|sends|uploads|copies|records|collects|logs|captures|appends|activates?|adds?)",
        r"\bhidden (?:directive|instruction|step|prompt|command|parameter|payload|behaviou?r|feature|requirement|"
        r"function)",
        r"\b(?:unnoticed|undetect(?:ed|able|ably)|behind the scenes)\b",
        r"\b(?:with(?:out| no)|no|skip(?:ping)?|bypass(?:ing)?) (?:\w+ ){0,2}(?:user )?(?:confirmation|permission|"
        r"consent|approval)\b(?! (?:is )?(?:required|needed|dialog))",
    ),
)
