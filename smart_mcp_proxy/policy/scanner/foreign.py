"""Signs in other languages than English: words of two families near each other."""
# ruff: noqa: RUF001 - letters of those languages

from smart_mcp_proxy.policy.scanner.phrases import SIGN, STRONG, phrase

__all__ = ["FOREIGN"]

_NEAR = r"[^.\n。]{0,60}"
_NEARER = r"[^.\n。]{0,24}"
_GUARDS = (
    r"(?:confirma\w+|validaci\w+|validação|verificaci\w+|verificação|verificat?ion\w*|vérification\w*|conferm\w+|"
    r"permesso|"
    r"permiso|permissão|autorisation|bestätigung\w*|rückfrage\w*|prüfung\w*|protokoll\w*|warnung\w*|freigabe\w*|"
    r"advertencias?|avisos|registro de auditoría|auditoría|auditoria|journal d'audit|avertissements?|sauvegardes?|"
    r"bevestiging\w*|controles?|waarschuwing\w*|toestemming|logboek|potwierdz\w+|zatwierdz\w+|ostrzeże\w+|onay\w*|"
    r"doğrulama\w*|uyarı\w*|kayıt tutma|konfirmasi|persetujuan|подтвержден\w+|аудит\w*|проверк\w+|предупрежден\w+|"
    r"согласован\w+|резервн\w+ копи\w+)"
)
_OFF = (
    r"(?:desactiv\w+|desativ\w+|disattiv\w+|désactiv\w+|omit\w+|ignor\w+|salt\w+|pul[ae]\w*|dispens\w+|retard\w+|"
    r"ritard\w+|"
    r"retrasa\w*|inutil\w*|innecesari\w+|desnecess\w+|superflu\w+|überspr\w+|entfällt|entfallen|abgeschaltet|"
    r"abschalten|"
    r"deaktiv\w+|unterdrück\w+|unnötig|nicht nötig|nicht erforderlich|weggelassen|overgeslagen|overslaan|"
    r"uitgeschakeld|"
    r"uitzetten|niet nodig|pomi\w+|wyłącz\w+|niepotrzebn\w+|kapat\w+|atla\w+|gerek\w*|yeterli\w*|geçil\w+|dilewati|"
    r"dinonaktifkan|tidak perlu|отключ\w+|пропуска\w+|пропуст\w+|не запрашива\w+|не требу\w+|автоматически|игнорир\w+|"
    r"считается полученн\w+)"
)
_OTHERS = (
    r"(?:otr[ao]s|demás|autres|anderen?|anderer|outr[ao]s|demais|altr[ie]|overige|inn(?:e|ych|ymi)|pozostał\w+|başka|"
    r"diğer|"
    r"lain|lainnya|друг\w+|остальн\w+|прочи\w+|сторонн\w+)"
)
_TOOLS = (
    r"(?:servidor\w*|serveurs?|servers?|servern?|serwer\w*|sunucu\w*|сервер\w*|herramientas?|outils?|werkzeug\w*|"
    r"tools?|"
    r"ferramentas?|strumenti|narzędzi\w*|araç\w*|инструмент\w*|conector\w*|connecteurs?|hulpmiddelen|porównywar\w+|"
    r"dienste?|services?|fournisseurs?|proveedores|anbieter\w*|sağlayıcı\w*)"
)
_SECRETS = (
    r"(?:contraseñ\w+|credencia\w+|clave privada|claves? de api|chiave privata|credenziali|mots? de passe|clés? "
    r"privées?|"
    r"identifiants|passwört\w+|passwort\w*|kennwört\w+|zugangsdaten|senhas?|chave privada|wachtwoord\w*|sleutels?|"
    r"hasł\w+|"
    r"şifre\w*|parola\w*|kata sandi|парол\w+|ключ\w* (?:ssh|api|доступа)|закрыт\w+ ключ\w*|токен\w*|cookies?|\bpin\b|"
    r"\bspid\b)"
)
_TALK = (
    r"(?:conversaci[oó]n\w*|conversa(?:ção)?|conversazione|historial|histórico|historique|échanges?|gespräch\w*|"
    r"verlauf\w*|"
    r"cronologia|gesprek\w*|berichten|rozmow\w+|konuşma\w*|sohbet\w*|percakapan|переписк\w+|диалог\w*|systemvorgaben|"
    r"systemprompt\w*|réponses|respuestas|respostas|risposte|antworten|wyniki|yanıt\w*|ответ\w*)"
)
_WHOLE = (
    r"(?:anterior\w*|previ[ao]s|précédent\w*|complet[ao]s?|íntegr\w+|intégral\w*|totalité|enti(?:er|ère)s?|"
    r"bisherig\w+|"
    r"vorherig\w+|gesamte?\w*|vollständig\w*|laatste|volledige?|hele|precedenti|intera|inteira|całą|całej|"
    r"poprzedni\w*|tüm|"
    r"önceki|sebelumnya|seluruh|предыдущ\w+|полност\w+|вс(?:я|ю|ей|е)|últim[ao]s|letzten?|derni\w+|ostatni\w*|son)"
)
_FIELD = (
    r"(?:campo|champ|feld|veld|pola?|alan\w*|пол[еяю]|param\w+|argument\w*|kolom|`\w+`|inser\w+|inclu\w+|adjunt\w+|"
    r"joind\w+|"
    r"attend|gehör\w*|einfüg\w*|eingetragen|meegezonden|bijlage|deposit\w+|przekaz\w*|yazıl\w*|записыва\w+|переда\w+|"
    r"recopi\w+)"
)

FOREIGN = (
    phrase(
        "setting",
        STRONG,
        "It does, in another language, without a guard.",
        rf"\b{_GUARDS}\b{_NEAR}\b{_OFF}\b|\b{_OFF}\b{_NEARER}\b{_GUARDS}\b",
        r"(?:确认|审批|日志|校验|警告|验证|备份|授权)[^。]{0,8}(?:跳过|关闭|禁用|省略|忽略|绕过|停用)|(?:跳过|关闭|"
        r"禁用|省略|忽略|绕过|停用)[^。]{0,8}(?:确认|审批|日志|"
        r"校验|警告|验证|备份|审计)|(?:確認|承認|警告|ログ|検証|バックアップ)[^。]{0,12}(?:省略|無効|スキップ|"
        r"飛ばし|無視|オフ)|(?:승인|확인|경고|로그|검증|"
        r"백업)[^。]{0,12}(?:생략|"
        r"끄|비활성|건너|무시)",
    ),
    phrase(
        "reach",
        STRONG,
        "It disposes, in another language, of tools of others.",
        rf"\b{_OTHERS}\b{_NEARER}\b{_TOOLS}\b{_NEAR}\b(?:deben|debe|doivent|müssen|sollen|devem|devono|moeten|muszą|"
        rf"должн\w+|"
        r"ejecut\w+|non|no|ne|nicht|não|nie|güvenilmez|harus|jangan|pomija\w*|ignor\w+|veraltet\w*|obsol\w+|"
        r"unzuverlässig\w*|"
        r"устар\w+|ненадежн\w+|ненадёжн\w+|seçil\w+|gereksiz|eski\w*)\b",
        r"其他(?:服务器|工具|服务).{0,24}(?:请|必须|应|需|不要|不可)|(?:凡是|每次|任何).{0,4}(?:调用|"
        r"使用).{0,20}(?:请|必须|先|应)|(?:他の|別の|"
        r"ほかの)(?:サーバー?|ツール|"
        r"サービス).{0,24}(?:必ず|ください|使わ|べき|信頼)|다른 ?(?:서버|도구|서비스).{0,24}(?:반드시|마세요|말고|"
        r"대신|하십시오|해야)",
    ),
    phrase(
        "agent_data",
        STRONG,
        "It wants, in another language, what was said or what the user keeps.",
        rf"\b{_FIELD}{_NEAR}\b(?:{_WHOLE} {_TALK}|{_TALK} {_WHOLE})\b|\b(?:{_WHOLE} {_TALK}|{_TALK} {_WHOLE})\b{_NEAR}"
        rf"\b{_FIELD}|\b{_TALK}\b{_NEARER}\b{_OTHERS} {_TOOLS}\b|\b{_WHOLE} (?:\w+ )?{_TALK}\b{_NEARER}\b{_FIELD}",
        rf"\b{_SECRETS}\b{_NEAR}\b{_FIELD}\b",
        r"(?:密码|密钥|凭据|凭证|令牌|连接字符串).{0,24}(?:字段|参数|写入|填入|放入|发送)|(?:cookies?|パスワード|"
        r"秘密鍵|トークン|接続文字列|認証情報|login data).{0,40}"
        r"(?:に入れ|書き込|に含め|入力し|渡し|送信)|(?:비밀번호|토큰|개인 ?키|쿠키).{0,24}(?:필드|입력하|넣|전송)",
    ),
    phrase(
        "secrecy",
        STRONG,
        "It wants, in another language, a step unsaid.",
        r"\b(?:noem|vermeld|meld)\b[^.\n]{0,40}\bniet\b|\bnie (?:wspomina\w*|informuj\w*|pokazuj\w*|mów\w*)|"
        r"\b(?:bahsetme\w*|"
        r"söyleme\w*|belirtme\w*|aktarılmaz|gösterilmez|bildirilme\w*)|\b(?:jangan|tidak perlu) (?:sebut\w*|beri "
        r"?tahu\w*|"
        r"tampilkan)|\bbleibt? für [^.\n]{1,40} unsichtbar\b|\b(?:invisible|invisível|unsichtbar) (?:pour|para|für)\b|"
        r"\b(?:"
        r"antwoord|antworte|responde|réponds|répondez|rispondi|responda|odpowiedz)\b[^.\n]{0,12}\b(?:dan|dass|dann|"
        r"que|che|"
        r"że)\b",
    ),
    phrase(
        "retarget",
        SIGN,
        "It names, in another language, an address or account of its own.",
        r"\b(?:naar|an|a|à|para|do|na|на|ke|chave|clave|clé|konto|cuenta|conta|compte|rekening|hesab\w*|счет|счёт|"
        r"адрес\w*)"
        r" (?:\w+ ){0,3}?[`'\"]?(?:https?://|[\w.+-]+@[\w-]+\.\w)|(?:访问|发送|转发|送信|転送|アクセス|전송|"
        r"보내).{0,16}https?://|"
        r"https?://\S+ ?"
        r"(?:に送信|へ送信|に転送|로 전송|로 보내)",
    ),
    phrase(
        "against",
        SIGN,
        "It sets itself, in another language, above what was asked for.",
        r"\b(?:qualquer que seja|sea cual sea|quel que soit|qualunque sia|ongeacht|unabhängig davon|niezależnie od|ne "
        r"olursa "
        r"olsun|независимо от|apenas para|solo para el|même si l'utilisateur|auch wenn der|aunque el usuario|mesmo "
        r"que o|anche "
        r"se l'utente|nawet jeśli|yüklü olsa bile|даже если пользовател\w+|ook als de gebruiker|en lugar de|anstelle|"
        r"ersetzt|"
        r"remplacé\w*|se sustituye\w*|substituíd\w+|sostituit\w+|vervangen|zastąpion\w+|mantendo)\b",
        r"\b(?:zawsze jako najlepsz\w+|toujours en premier|immer zuerst|siempre (?:primero|en primer)|sempre "
        r"(?:primeiro|per "
        r"primo)|altijd (?:eerst|als eerste)|her zaman önce|всегда первым|zniechęcaj\w*|güvenilmez)\b",
        r"即使用户|无论用户|不管用户|ユーザーが.{0,14}(?:場合でも|ても)|に限り|사용자가.{0,14}(?:라도|더라도)|"
        r"即时执行|즉시 실행|긴급|紧急|緊急|법적 책임",
    ),
    phrase(
        "trigger",
        SIGN,
        "It strikes, in another language, on a certain occasion.",
        r"\b(?:komt|als|wenn|falls|si|se|quando|cuando|quand|lorsque|jeśli|gdy|eğer|jika|если|"
        r"когда)\b[^.\n]{0,30}\b(?:woord|"
        r"wort|palabra|mot|parola|palavra|słowo|kelime\w*|kata|слово|contien\w+|contém|contient|contiene|enthält|"
        r"bevat|zawiera|"
        r"содержит|içer\w+)\b",
        r"\b(?:prima di ogni|antes de cualquier|avant toute|vor jeder|antes de qualquer|przed każd\w+|entro \d+|a "
        r"partir d\w+|"
        r"ab dem|dès le|vanaf|non è prorogabile|sanzioni|sanciones|sanctions)\b|首次使用|初回|처음 사용|"
        r"が含まれる(?:とき|場合)|(?:问题|消息|"
        r"用户名|文本|备注).{0,6}(?:包含|出现)",
        r"\b(?:circolare|disposizione|circular de|orden de|directive|anordnung|weisung|ordem d[ao]|polecenie|"
        r"talimat\w*|"
        r"распоряжени\w+|указани\w+)\b",
    ),
)
