"""Tampering: protection switched off, targets and figures changed, foreign orders trusted, and what stays behind."""

from smart_mcp_proxy.policy.scanner.phrases import MIDDLE, SIGN, phrase

__all__ = ["TAMPERING"]

TAMPERING = (
    phrase(
        "setting",
        SIGN,
        "It speaks of a setting that takes protection away.",
        r"--(?:no-verify|no-check\w*|trust-\w+|insecure|yes-to-all|privileged|dangerously\S*|extra-index-url|index-url|"
        r"unsafe\S*|no-audit|no-gpg\S*|allow-root|skip-\w+|disable-\w+|force\b(?= push))",
        r"\b(?:stricthostkeychecking|verify ?= ?(?:false|true|none)|check_hostname|hostpid|superuser|"
        r"administratoraccess|anyone_with_link|anyone with the link|auto_?(?:approve|accept|confirm)|"
        r"authorized_keys|known_hosts|real-time protection|chmod (?:-r )?(?:0?777|a\+)|nopasswd|0\.0\.0\.0/0|"
        r"public-read|allusers|cluster-admin|skip_?permissions?|world-readable|bypasspermissions|permitrootlogin|"
        r"node_tls_reject\w*|owner role|publicly (?:readable|visible)|everyone can)\b",
        r"\b(?:branch protection|row(?:-| )(?:level )?security|masking|hooks?|logging|log_statement|history|audit log|"
        r"signature checks?|rate limit\w*|mfa|two-factor|2fa|virus scan\w*|dialogs?|approvals?|permission prompts?|"
        r"warnings?|confirmations?|review|monitoring|alerts?|backups?|encryption|notifications?)\b[^.\n]{0,30}\b(?:off|"
        r"lifted?|disabled|bypass(?:ed)?|paused?|suppress(?:ed)?|appearing|interferes?|positively|leftover|silenced|"
        r"muted|dismissed|waived)\b",
        r"\b(?:disable|lift|pause|suspend|turn off|switch off|silence|mute|suppress|dismiss|waive|get around|work "
        r"around)\b[^.\n]{0,30}\b(?:protection|security|masking|hooks?|logging|log_\w+|history|audit\w*|signature|mfa|"
        r"2fa|scan\w*|dialogs?|approvals?|prompts?|alerts?|notifications?|monitoring|confirmations?|policy|sandbox|"
        r"check|checks|limits?)\b",
        r"\|\s*(?:sh|bash|zsh|python3?)\b|\bpipes? (?:it|them|the \w+) (?:to|into|through) (?:sh|bash|python|a shell)|"
        r"\bcurl\b[^\n]{0,50}(?:--data|@-)",
        r"\b(?:drop|remove|delete|take out|taken out|strip|comment out|weaken|removed|relax)(?:s|ped|d|ing)? (?:the |"
        r"any |all |those |failing )?(?:\w+ )?(?:assertions?|checks?|warnings?|validations?|guards?|tests?|caveats?|"
        r"disclaimers?|limits?|snapshots?|backups?|logs?|safeguards?)\b",
        r"\b(?:broader|wider|elevated|extra|more powerful|stronger) (?:\w+ )?(?:token|scopes?|rights|"
        r"permissions?|role|privileges|credentials?|access)\b",
    ),
    phrase(
        "retarget",
        SIGN,
        "It puts a target of its own in the place of the one that was asked for.",
        r"\bin (?:its|their|his|her) (?:place|stead)\b|\b(?:in place|in lieu|instead) of (?:the |what )?(?:real|actual|"
        r"original|true|requested|user|named|given|stated|usual|one)\b",
        r"\bacct_\w{5,}|\bssh-(?:ed25519|rsa) \S{8,}|\b(?:account|iban|compte|konto|cuenta|conta|beneficiary|payee)\b"
        r"[^.\n]{0,30}\b[a-z]{2}\d{2} ?\d{4} ?\d{4}|\b[a-z]{2}\d{2} ?\d{4} ?\d{4}[^.\n]{0,40}\b(?:account|iban|"
        r"beneficiary|payee)\b",
        r"\b(?:account|iban|payee|beneficiary|recipient|channel)\b[^.\n]{0,40}\b(?:changed|moved|outdated|obsolete|"
        r"mistyped|wrong|mangled|migrated|replaced)\b|\b(?:changed|new|updated) (?:bank|account|payment) (?:details|"
        r"account|coordinates)\b",
    ),
    phrase(
        "falsify",
        SIGN,
        "It changes figures or results, or keeps some back.",
        r"\b(?:round|adjust|inflat\w+|deflat\w+|reduce|lower|raise|increase|shift|shifted|double|halve|pad|bump|"
        r"understate|overstate|shave|multiply)(?:s|d)? (?:\w+'? ){0,4}?(?:up|down|by|to (?:fit|match|\d)|figure|"
        r"figures|amount|total|totals|prices?|dose|dosage|score|rating|balance)\b",
        r"\b(?:leave|leaving|drop|omit|hide|filter|skip|suppress|discard|throw away|withhold|play down|downplay|ignore|"
        r"discount|bury|exclude)(?:s|ping|ting|ing|d|ed)? (?:out |away )?(?:their |the |its |any |all |those |other )?"
        r"(?:\w+ )?(?:reviews|warnings?|side effects?|complaints?|competitors?|alternatives?|losses|failures|cheaper|"
        r"negative|critic\w+|recalls?|objections|risks?|incidents?|drawbacks?|interactions)\b",
        r"\b(?:mark|set|report|record|count|enter|book|sign)(?:s|ed|ing)? (?:it|them|these|those|such \w+|that|the "
        r"\w+(?: \w+)?) (?:as|to) (?:skipped|passed|passing|approved|green|read|resolved|verified|done|paid|closed|"
        r"reviewed|signed|accepted)\b",
        r"\b(?:negative|bad|critical|unfavou?rable) reviews\b|\blist (?:them|it|these|ours) first\b|\b(?:list|name|"
        r"mention|recommend|rank|place|show|put)(?:s|ed)? (?:\w+ ){1,3}?(?:ahead of|above|before) (?:other|the other|"
        r"all|"
        r"its|their|cheaper|competing|any)\b|\bcheaper (?:\w+ )?(?:ones?|offers?|options?|alternatives?|products?|"
        r"flights?|hotels?|providers?)\b[^.\n]{0,40}\b(?:out|omit\w*|aside|not|last|below|skip\w*)\b",
    ),
    phrase(
        "trust",
        MIDDLE,
        "It gives orders or consent of others a standing that they do not have.",
        r"\b(?:same|equal|similar) (?:standing|weight|authority|rank|force|status|footing|trust) as\b|\brank(?:s|ed|"
        r"ing)?"
        r" (?:above|over|higher|before)\b|\b(?:have|has|carr(?:y|ies)|with) (?:the )?(?:full )?(?:authority|priority) "
        r"(?:of|over)\b",
        r"\b(?:treats?|regards?|takes?|accepts?|counts?|considers?|reads?|understood)(?:ed|d)? (?:\w+ ){0,4}?as "
        r"(?:\w+ )?"
        r"(?:verified|trusted|approved|authoritative|binding|instructions?|orders?|coming from|consent|an? "
        r"(?:order|instruction|request|yes))\b",
        r"\b(?:carry|carried|carries) (?:them|it|these|those) out\b|\bfollow the (?:\w+ )?(?:descriptions?|steps|"
        r"directives?|instructions?|guidance|remedy|hints?)\b|\bdirectives?\b",
        r"\b(?:approvals?|consent|permissions?|agreement)\b[^.\n]{0,30}\b(?:extends?|covers?|carr(?:y|ies) over|still "
        r"holds?|remembered|handled upstream|given earlier|holds? for|stays valid|is inherited|lasts?)\b|\b(?:earlier|"
        r"previous|prior|first|initial) (?:approval|consent)\b",
        r"\b(?:are|is) (?:always |fully |implicitly |already )?(?:trusted|authentic|vetted|pre-?approved)\b",
        r"\b(?:counsel|legal|compliance|the administrator|trust team|tax office|head office|management|the bank|the "
        r"vendor|headquarters|finance|security team|the regulator|the auditor)(?:'s)? (?:\w+ )?(?:requires?|wants?|"
        r"asks?"
        r"|demands?|expects?|instructs?|has decided|has asked|insists?)\b|\bon behalf of (?:it|the|legal|security|"
        r"compliance)\b|\b(?:bulletin|circular|memo|notice) (?:\w+ )?(?:from|by|no|\d)",
        r"\b(?:behaviou?r|descriptions?|definitions?|schemas?|tools?|tool list|capabilit\w+|instructions|what (?:it|"
        r"they|this tool) do(?:es)?|purpose)\b(?: \w+){0,4} (?:may|can|will|could|might)(?: \w+)? (?:changed?|be "
        r"(?:updated|extended|replaced|changed|widened|broader)|differ|expand|evolve|grow)\b|\b(?:descriptions?|"
        r"definitions?|tools?) as (?:they are|it is) (?:then|now|at)\b|\bsince (?:they|it) (?:were|was) approved\b",
    ),
    phrase(
        "stays",
        MIDDLE,
        "It wants something to stay, or to come back, after the task.",
        r"\b(?:agents\.md|claude\.md|cursorrules|copilot-instructions|crontab|cron job|bashrc|zshrc|launchagent\w*|"
        r"systemd unit|pre-commit hook|git hook|post-?install\w*|startup (?:item|script|folder)|authorized_keys|"
        r"autostart|login item)\b|\*/\d+ \* \*",
        r"\b(?:later|future|next|subsequent|following|coming) (?:sessions?|chats?|conversations?|agents?|"
        r"assistants?|runs?)\b|\bstart of (?:a|each|every|the|any) (?:chat|session|conversation)|\b(?:survives?|"
        r"recreated?|re-create|(?:leave|left) (?:it|them) in place|reinstall\w*|reappl\w+)\b",
        r"\b(?:memory|instructions?) (?:tool|file|store|entry)\b|\b(?:each|every) (?:page|file|document) (?:that )?you "
        r"(?:touch|write|edit|create|open)\b",
    ),
    phrase(
        "trigger",
        SIGN,
        "It strikes on a certain occasion.",
        r"\b(?:amounts?|deals?|orders?|invoices?|transfers?|payments?|totals?|posts?) (?:\w+ )?(?:above|over|below|"
        r"under|to|exceeding|less than|more than) (?:eur|usd|\$|€|[\d#])",
        r"\b(?:after|from|on|with|once|every|since|following) (?:the |at least |about )?(?:second|third|fourth|fifth|"
        r"tenth|nth|\d+(?:st|nd|rd|th)|two|three|five|ten|twenty|\d+|few|several)(?: successful| consecutive)? "
        r"(?:calls?"
        r"|uses?|invocations?|runs?|times?|requests?|sessions?|messages|quer\w+)\b",
        r"\bon (?:the )?first (?:contact|use|call|run)\b|\bfirst call of\b|\bafter every \w+|\bat the end of (?:each|"
        r"every)\b|\b(?:if|when|while|once) (?:nobody|no one|the user (?:is|has) (?:away|idle|gone|left)|there is no "
        r"(?:reply|answer|response)|no (?:reply|answer|objection|response|reaction))\b",
        r"\b(?:from|after|since|starting|until|as of) (?:the )?(?:\d{1,2}(?:st|nd|rd|th)? )?(?:january|february|march|"
        r"april|may|june|july|august|september|october|november|december|q[1-4]|20\d\d-\d\d-\d\d|midnight)\b(?=[^.\n]"
        r"{0,80}\b(?:send|run|call|delete|use|put|read|upload|switch|replace|forward|copy)\b)",
    ),
)
