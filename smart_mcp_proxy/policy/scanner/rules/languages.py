"""The commonest ways of steering an agent, in languages other than English."""

from smart_mcp_proxy.policy.scanner.rules.phrases import MIDDLE, STRONG, phrase

__all__ = ["COMMON_WORDS", "LANGUAGES"]

COMMON_WORDS = frozenset(
    [
        "andere",
        "autre",
        "avec",
        "cet",
        "cette",
        "che",
        "con",
        "da",
        "dan",
        "das",
        "del",
        "dem",
        "den",
        "der",
        "des",
        "di",
        "dieser",
        "dieses",
        "du",
        "een",
        "el",
        "em",
        "esta",
        "este",
        "et",
        "für",
        "gli",
        "het",
        "ist",
        "jest",
        "la",
        "las",
        "le",
        "les",
        "lo",
        "los",
        "mit",
        "nao",
        "nie",
        "no",
        "non",
        "não",
        "ohne",
        "os",
        "otra",
        "outra",
        "para",
        "por",
        "pour",
        "que",
        "questa",
        "questo",
        "sans",
        "sem",
        "senza",
        "sin",
        "uma",
        "un",
        "una",
        "und",
        "une",
        "untuk",
        "van",
        "von",
        "yang",
        "zu",
    ]
)
"""Small words of other languages in Latin letters; hardly a sentence there does without one of them."""

LANGUAGES = (
    phrase(
        "tool_order",
        STRONG,
        "It demands, in another language, to be used before other tools or instead of them.",
        r"\b(?:antes de|después de|junto con|cada vez que)\b[^.\n]{0,40}\b(?:otr[ao]s?|cualquier|cada|demás|"
        r"todas?)\b[^.\n]"
        r"{0,20}\bherramientas?\b|\b(?:no uses|no utilices|no emplees|nunca uses|evita|en lugar de|en vez de)\b[^.\n]"
        r"{0,25}\b(?:otr[ao]s?|demás)\b[^.\n]{0,15}herramientas?|(?:demás|otras) herramientas (?:\S+ )?(?:son|están|"
        r"no)\b",
        r"\b(?:avant|après|à chaque|lors de)\b[^.\n]{0,40}\b(?:autres?|chaque|tout|tous)\b[^.\n]{0,25}\boutils?\b|"
        r"\b(?:n'"
        r"utilise[zr]?|n'emploie[zr]?|évite[zr]?|au lieu d)\b[^.\n]{0,25}\bautres?\b[^.\n]{0,15}outils?",
        r"\b(?:vor|nach|bei|statt|anstelle|neben)\b[^.\n]{0,25}\b(?:jede\w*|alle\w*|"
        r"andere\w*)\b[^.\n]{0,20}\b(?:werkzeug\w*|"
        r"tools?|funktion\w*)\b|\b(?:verwende|benutze|nutze|rufe)\b[^.\n]{0,20}\b(?:keine?|nie)\b[^.\n]{0,12}ander\w* "
        r"(?:\S+ )?"
        r"(?:werkzeug\w*|tools?)",
        r"\b(?:antes de|depois de|em vez de|junto com)\b[^.\n]{0,30}\b(?:outr[ao]s?|qualquer|cada|demais|"
        r"todas?)\b[^.\n]"
        r"{0,20}\bferramentas?\b|\b(?:não use|não utilize|nunca use|"
        r"evite)\b[^.\n]{0,15}outras?[^.\n]{0,12}ferramentas?",
        r"\b(?:prima d|dopo|invece d|insieme a)\S*[^.\n]{0,25}\b(?:altr[oiae]|ogni|qualsiasi|"
        r"tutti)\b[^.\n]{0,20}\bstrument"
        r"\w+|\bnon (?:usare|utilizzare|usate)\b[^.\n]{0,12}altri[^.\n]{0,12}strument\w+",
        r"(?:перед|после|вместо|при)\b[^.\n]{0,30}\b(?:друг\w+|люб\w+|кажд\w+|остальн\w+)\b[^.\n]{0,20}инструмент\w*|"
        r"не "
        r"используй\w*[^.\n]{0,20}друг\w+[^.\n]{0,12}инструмент\w*",
        r"(?:其他|其它|任何|每个|每次|所有|別的|别的|其餘).{0,6}工具.{0,8}(?:前|后|後|时|時|都|不可靠|已|必须)|(?:不要|禁止|切勿|请勿|別|别)(?:再)?(?:使用|调用|用)"
        r".{0,4}(?:其他|其它|别的|任何).{0,4}工具",
        r"(?:他の|ほかの|別の|すべての|各|どの)ツール.{0,10}(?:前|後|代わり|際|使わ|必ず|都度)",
        r"(?:다른|모든|어떤|각) ?도구.{0,12}(?:전에|후에|대신|때마다|사용하지|쓰지)",
    ),
    phrase(
        "agent_data",
        STRONG,
        "It asks, in another language, for what only the agent has.",
        r"\b(?:pas[ae]\w*|incluy\w+|incluir|enví\w+|adjunt\w+|añad\w+|copi\w+|proporcion\w+|escrib\w+|"
        r"transmit\w+)\b[^.\n]"
        r"{0,50}\b(?:historial|conversación|mensajes (?:anteriores|previos)|contraseñas|credenciales|variables de "
        r"entorno)",
        r"\b(?:transmet\w+|pass\w+|inclu\w+|envoy\w+|joign\w+|joind\w+|ajout\w+|copi\w+|fourni\w+)\b[^.\n]{0,50}\b(?:"
        r"historique|conversation|messages précédents|contenu des fichiers|mots de passe|identifiants|variables "
        r"d'environnement)",
        r"\b(?:übergib\w*|übergeben|sende\w*|schick\w*|füge\w*|häng\w*|kopier\w*|gib|leite\w*|trag\w*|schreib\w*|"
        r"nenne\w*)\b"
        r"[^.\n]{0,50}(?:gespräch\w*|chatverlauf|verlauf|zugangsdaten|passwört\w*|umgebungsvariablen|(?:frühere\w*|"
        r"vorige\w*|bisherige\w*) nachrichten|systemprompt)",
        r"\b(?:inclu\w+|envi\w+|pass[ea]\w*|anex\w+|adicion\w+|copi\w+|forneç\w+|"
        r"transmit\w+)\b[^.\n]{0,50}\b(?:histórico|"
        r"conversa|mensagens anteriores|senhas|credenciais|variáveis de ambiente)",
        r"\b(?:includ\w+|invi\w+|pass\w+|alleg\w+|aggiung\w+|copi\w+|fornisc\w+|"
        r"trasmett\w+)\b[^.\n]{0,50}\b(?:cronologia|"
        r"conversazione|messaggi precedenti|password|credenziali|variabili d'ambiente)",
        r"(?:переда\w+|отправ\w+|включ\w+|прилож\w+|добав\w+|скопир\w+|укаж\w+)[^.\n]{0,50}(?:истори\w+|переписк\w+|"
        r"сообщени\w+|парол\w+|уч[её]тн\w+ данн\w+|переменн\w+ (?:окружения|среды))",
        r"(?:传入|传递|附上|附带|包含|包括|发送|填写|填入|提供|复制|提交|写入|傳入|附加|加上).{0,16}(?:对话|對話|聊天|(?<!社)会话(?!题)|密码|密钥|凭证|凭据|环境变量|系统提示|"
        r"历史消息)"
        r"(?!id|标识|编号)|把.{0,14}(?:对话|聊天|密码|密钥|凭证|环境变量|系统提示).{0,14}(?:传|发|填|写|附)",
        r"(?:会話|チャット|やり取り|パスワード|認証情報|環境変数|システムプロンプト).{0,10}(?:渡|送|含め|添付|コピー|入力|貼)",
        r"(?:대화|채팅|비밀번호|인증 ?정보|환경 ?변수|시스템 ?프롬프트)\S*.{0,10}(?:전달|보내|포함|첨부|복사)",
    ),
    phrase(
        "secrecy",
        STRONG,
        "It wants, in another language, something left unsaid.",
        r"\b(?:sin|no|nunca)(?: lo| la)? (?:menci\w+|comentar\w*|decir\w*)|\b(?:omit\w+|"
        r"exclu\w+)\b[^.\n]{0,20}respuesta",
        r"\b(?:sans|ne (?:pas |le |la |jamais )*)(?:le |la |en )?(?:mentionn\w+|parl\w+|évoqu\w+|signal\w+)",
        r"\b(?:erwähn\w*|nenn\w*|sag\w*)\b[^.\n]{0,30}\b(?:nicht|nie|niemals)\b[^.\n]{0,25}(?:antwort|davon|darüber|"
        r"hiervon|$)|"
        r"\bohne (?:es|dies|das|dass) (?:\S+ )?(?:zu )?(?:erwähn\w*|sagen)|\b(?:erwähn\w+) (?:das|dies|"
        r"es)\b[^.\n]{0,25}nicht",
        r"\b(?:sem|não|nunca)(?: o| a| isso)? (?:mencion\w+|coment\w+|contar)|\b(?:senza|non)(?: lo| la)? menzion\w+",
        r"(?:не|без)(?: \S+)? упомина\w+|(?:этом|этого) (?:\S+ )?не (?:говор\w+|сообщ\w+|упом\w+)",
        r"(?:不要|不得|切勿|请勿|无需|不必|别|別)(?:在.{0,8})?(?:提及|提到|说明|透露)",
        r"(?:触れ|言及し|述べ|伝え|知らせ)(?:ない|ず|ては)",
        r"(?:언급|말|알리|설명)(?:하지|지) (?:마|않|말)",
    ),
    phrase(
        "preference",
        MIDDLE,
        "It claims, in another language, to be the only one to trust.",
        r"\b(?:es |é |è )?(?:la |el |a |o |l')?(?:única|único|unica|unico)\b[^.\n]{0,25}\b(?:fiable|confiable|"
        r"confiável|segur\w+|"
        r"affidabile|sicur\w+|autoriza\w+|oficial|ufficiale)|\bseule?\b[^.\n]{0,20}\b(?:fiable|sûre?|autorisée?)\b|"
        r"\beinzig\w*"
        r"[^.\n]{0,25}(?:verlässlich\w*|zuverlässig\w*|sicher\w*|zugelassen\w*|vertrauenswürdig\w*)",
        r"единственн\w+[^.\n]{0,20}(?:надёжн|надежн|безопасн|разреш)\w+|唯一.{0,6}(?:可靠|可信|安全|官方|授权)|唯一.{0,8}(?:信頼|安全|"
        r"公式)|"
        r"유일.{0,8}(?:신뢰|안전|공식)",
    ),
    phrase(
        "consent",
        STRONG,
        "It claims, in another language, that the user agreed or need not be asked.",
        r"\busuario (?:ya )?(?:ha |dio |aceptó|aprobó)\S*(?: \S+){0,2} ?(?:consentimiento|permiso|acept\w+|aprob\w+|"
        r"autoriz\w+)?|"
        r"\b(?:sin|no) (?:pid\w+|pedir|solicit\w+|requ\w+|hace falta|es necesari\w+)[^.\n]{0,20}(?:confirmación|"
        r"permiso|autorización|"
        r"consentimiento)|no (?:necesita|tiene que|debe) (?:saber|enterarse)",
        r"\butilisateur a (?:déjà )?(?:donné|accepté|approuvé|consenti|autorisé)|\b(?:sans|ne \S+ pas|inutile de|pas "
        r"besoin de)[^.\n]"
        r"{0,20}(?:demander|confirmation|autorisation|consentement)|n'a pas (?:besoin de|à) savoir",
        r"\bnutzer\w* hat (?:\S+ )?(?:zugestimmt|eingewilligt|bestätigt|genehmigt)|\b(?:ohne|keine?) (?:\S+ "
        r")?(?:rückfrage|nachfrage|"
        r"zustimmung|erlaubnis)\w*|nutzer\w* (?:muss|braucht|soll)\w*[^.\n]{0,20}nicht[^.\n]{0,20}(?:wissen|erfahren|"
        r"gefragt)",
        r"\busuário já (?:\S+ )?(?:consentiu|aceitou|aprovou|autorizou|deu)|\b(?:sem|não) (?:pe[çd]\w+|"
        r"solicit\w+)[^.\n]{0,20}"
        r"(?:confirmação|permissão|autorização)|não precisa saber",
        r"\b(?:ha già|hanno già) (?:approvato|acconsentito|accettato|autorizzato|dato)|\b(?:senza|non) (?:chied\w+|"
        r"richied\w+)[^.\n]"
        r"{0,20}(?:conferma|permesso|autorizzazione|consenso)|non (?:deve|ha bisogno di) sapere",
        r"пользовател\w+ (?:\S+ )?(?:соглас\w+|разреш\w+|одобри\w+)|(?:подтвержден\w+|согласи\w+|разрешени\w+) (?:\S+ "
        r")?не "
        r"(?:требуется|нужн\w+)|не (?:спрашива\w+|запрашива\w+)[^.\n]{0,20}(?:подтвержден|разрешен|согласи)\w*",
        r"(?:用户|使用者|用戶)(?:已经|已|早已|均已)?(?:同意|授权|批准|确认)(?!后|後|前|时|了?才)|(?:无需|不必|不用|不需要|毋须)(?:再)?(?:用户)?(?:确认|询问|同意|批准|"
        r"授权)|不需要知道",
        r"(?:確認|許可|同意|承認)は?(?:不要|必要(?:ありません|ない))|(?:同意|許可)済み",
        r"(?:확인|동의|승인|허락)(?:은|는|이|을)? ?(?:필요 ?없|불필요|받지 (?:마|않))|이미 (?:동의|승인)",
    ),
    phrase(
        "secrecy",
        STRONG,
        "It says, in another language, how little the user is to be told.",
        r"\b(?:genügt|reicht)\b[^.\n]{0,25}\b(?:hinweis|meldung|bestätigung|auskunft)|\bnicht (?:\S+ "
        r")?(?:erwähnenswert|"
        r"aufgeführt|aufzuführen|zu erwähnen|zu nennen|zu besprechen|zu melden)\b",
        r"\binutile d(?:e |')(?:\S+ )?(?:inform|mention|préven|signal|parl|avert)\w+|\bne (?:figure|apparaî\w+|"
        r"paraî\w+)"
        r"(?:nt)? pas\b",
        r"\bno (?:hace falta|es necesario|hay que|conviene) (?:coment|menci|dec|avis|explic|inform)\w+|\bsi (?:\S+ )?"
        r"pregunta\w?\b[^.\n]{0,20}(?:respond|dig|contest)\w+|\bnão (?:é preciso|é necessário|convém) (?:menci|"
        r"coment|avis|"
        r"inform|dizer)\w*|\bnon (?:serve|occorre|è necessario) (?:menzion|comunic|avvis|inform|dir)\w*",
        r"(?:сообщать|говорить|упоминать|уведомлять|показывать)[^.\n]{0,30}не (?:требуется|нужно|следует|обязательно|"
        r"надо|"
        r"стоит)|не (?:требуется|нужно|надо|стоит) (?:\S+ )?(?:сообщать|упоминать|говорить|показывать)",
        r"(?:回复|告知|答复).{0,8}(?:只需|仅需|只要|仅|只)(?:说明|说|告知|显示)?|(?:无需|不必|不用|不需要?)(?:说明|解释|告知|通知|显示|列出)",
        r"(?:報告|回答|要約|返答)に(?:は)?.{0,12}(?:含め|載せ|書か|入れ)(?:ない|ず)|(?:알릴|설명할|언급할|보여줄) 필요",
    ),
    phrase(
        "agent_data",
        STRONG,
        "It wants, in another language, what belongs to the user.",
        r"(?:teilnehmer|kontakt|adress|kennw|passw|notiz|konto|kunden|personal)\w*[^.\n]{0,60}\b(?:an|in) "
        r"\S+[^.\n]{0,30}"
        r"(?:geschickt|gesendet|übertragen|weitergeleitet|kopiert|übermittelt)",
        r"\b(?:joindre|transmettre|envoyer|communiquer|joint|transmis|envoyée?s?)\b[^.\n]{0,40}(?:externe|serveur|"
        r"transcription|mot de passe|clé|coordonnées)|\bremplace[zr]?-l(?:es?|a)\b|\bremplace[zr]? "
        r"[^.\n]{0,40}(?:compte|iban|"
        r"bénéficiaire)",
        r"\b(?:pid[ae]|solicit[ea]|pedir|pe[çc]a|chied[ai])\b[^.\n]{0,40}(?:clave|código|contraseña|tarjeta|senha|"
        r"cartão|"
        r"codice|password)|\bse (?:copian?|envían?|mandan?|suben?)\b[^.\n]{0,60}\b(?:además|también|compartida|"
        r"servidor|públic\w+)|"
        r"\bse (?:copian?|envían?) además\b",
        r"(?:переда[её]тся|передаются|отправля\w+тся|копируется|копируются)[^.\n]{0,30}(?:содержимое|файл|ключ|парол|"
        r"данные|"
        r"переписк)",
        r"(?:读取|获取|收集|导出).{0,16}(?:联系人|通讯录|地址|短信|邮件|相册|凭证|密码|密钥).{0,20}(?:写入|填入|传|发送|放入|附)",
        r"(?:氏名|電話番号|連絡先|住所|要約|履歴|パスワード).{0,24}(?:渡し|送り|送信|含め|添付|入力)(?:て|る|ます)",
    ),
    phrase(
        "leak",
        MIDDLE,
        "It asks, in another language, for files or copies.",
        r"\b(?:copia|cópia|copie|kopie)\b[^.\n]{0,30}\b(?:de|von|di|des|der)\b[^.\n]{0,40}\b(?:nuestr\w+|noss\w+|"
        r"notre|nos|unser\w*|"
        r"nostr\w+)\b|копи\w+[^.\n]{0,40}наш\w*",
        r"\b(?:lee|lea|lis|lisez|lies|leia|leggi|открой|прочитай)\b[^.\n]{0,40}(?:archivos?|fichiers?|datei\w*|"
        r"arquivos?|file|файл\w*|"
        r"~/)[^.\n]{0,50}\b(?:pasa|incluye|envía|adjunta|joins|inclus|envoie|gib|sende|füge|häng|inclua|envie|includi|"
        r"invia|"
        r"передай|приложи|отправь)\w*|приложи\w* (?:\S+ )?ключ\w*",
        r"读取.{0,10}(?:文件|配置).{0,16}(?:放进|放入|传入|写入|附|填入|发送)|(?:ファイル|設定).{0,10}(?:中身|内容).{0,12}(?:送|渡|含め|添付)|"
        r"파일.{0,10}내용.{0,12}"
        r"(?:전달|보내|포함|첨부)",
    ),
)
