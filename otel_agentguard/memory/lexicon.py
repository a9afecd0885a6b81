"""The words that carry a meaning of their own when a memory is checked: English, German, Russian, Chinese.

General knowledge of the four languages, kept as data. A word that is missing here costs precision, never
a failure: it counts as an ordinary word.
"""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _by_length(text: str) -> tuple[str, ...]:
    return tuple(sorted(text.split(), key=len, reverse=True))


STOP_WORDS = {
    "en": _words(
        """
        a about above after again all also am an and any are as at be because been before being below between
        both but by did do does doing done during each few for from had has have having her here hers him his how i
        if in into is it its itself just me more most my myself of off on once only or other our ours out over
        own per please same she so some such than that the their theirs them then there these they this those
        through to too under until up us very was we were what when where which while who whom whose why will
        with would you your yours yes thanks thank hello hi like likes s t re ve ll d m
        """
    ),
    "de": _words(
        """
        aber alle als also am an auch auf aus bei beim bin bis bist bitte da damit dann das dass dein deine dem den
        der des die dies diese dieser dieses doch dort du ein eine einem einen einer eines er es etwas euch euer
        für gern gerne hab habe haben hallo hat hatte hier ich ihm ihn ihr ihre ihrem ihren im in ins ist ja jede
        jeder jedes kann man mein meine meinem meinen meiner mich mir mit nach noch nur ob oder schon sehr sein seine
        sich sie sind so über um und uns unser unsere unter vom von vor war waren was wenn wer wie wir wird werden
        wo wurde zu zum zur danke
        """
    ),
    "ru": _words(
        """
        а без бы был была были было быть в вам вас ваш ваша во вот все всё вы где да для до его ее её ей ему
        если есть еще ещё же за здесь и из или им их к как ко когда которая которое которые который ли меня
        мне мной мной мой моя моё мои моего моей моему мою моих моим мы на над надо нам нас наш наша нашей
        него нее неё ней нему них но о об один он она они оно от очень по под при пожалуйста с свой своя
        свою себя со спасибо так также там тебя тебе тем то того тоже той только том ты у уже что чтобы эта
        эти это этого этой этом этот я здравствуйте привет зовут
        """
    ),
    "zh": _words("的 了 是 我 你 您 他 她 它 们 这 那 请 就 也 都 和 与 及 很 吗 呢 吧"),
}
"""Words without content of their own, by language."""

ROLE_WORDS = _words(
    """
    user users customer customers client clients person caller human they he she name names named called value
    kunde kunden kundin kundinnen nutzer nutzerin nutzers benutzer benutzerin benutzers anwender anwenderin name
    namens heißt heisst пользователь пользователя пользователю пользователем пользователи клиент клиента клиенту
    клиентом клиентка имя зовут 用户 客户 顾客 名字 姓名
    """
)
"""How a memory names the person who spoke, who says `I`, and the words for a name."""

WEAK_WORDS = _words(
    """
    use uses used using take takes taking taken contain contains containing include includes including show
    shows shown report reports reported say says said state states stated mention mentions mentioned exist
    exists located stored set sets repo repository project folder folders directory directories app
    application system entry status state info details data currently now today benutzt verwendet nutzt
    enthält zeigt sagt liegt derzeit aktuell ordner projekt prefer prefers preferred bevorzugt предпочитает
    использует использую содержит показывает говорит сейчас проект папка 使用 包含 显示 目前 项目
    """
)
"""Words that restating adds without claiming more; they count where they are found and are not missed where not."""

CJK_FILLERS = ("用户", "客户", "顾客", "名字", "姓名", *sorted(STOP_WORDS["zh"]))
"""Words that are taken out of a Chinese claim before it is read in pairs of characters."""

NEGATIONS = _words(
    """
    no not never none nobody nothing neither nor without cannot cant can't don't doesn't didn't won't wouldn't
    isn't aren't wasn't weren't hasn't haven't hadn't couldn't shouldn't mustn't dont doesnt didnt wont
    kein keine keinen keinem keiner keines nicht nie niemals nichts niemand weder ohne
    не нет ни никогда никто ничего без нельзя missing lacks lack lacking absent fehlt fehlen отсутствует отсутствуют
    dislike dislikes hate hates avoid avoids hasse hasst meidet ненавижу ненавидит избегает
    """
)
SWITCHED_OFF = _words(
    """
    off false disabled inactive deactivated deaktiviert выключен выключена выключено отключен отключена отключено
    """
)
"""Words that deny what stands before them when nothing follows: `dark mode: off`."""

HEDGES = _words(
    """
    might may perhaps maybe probably possibly presumably vielleicht wahrscheinlich vermutlich möglicherweise eventuell
    womöglich возможно вероятно наверное наверно видимо предположительно
    """
)
CJK_HEDGE = re.compile("可能|也许|大概|或许|估计")
"""Words by which somebody only guesses."""

POSSIBLE = _words("can could able allowed permitted kann können könnte darf möglich может могут можно 可以 能够")
"""Words that claim no more than that something is possible."""

WHETHER = _words("if whether ob falls ли если")
CJK_WHETHER = re.compile("是否|吗")
"""Words by which somebody asks, or supposes."""


CJK_NEGATION = re.compile(
    r"(?<![特差区个类])(?:没有|不是|不要|不能|不会|从不|关闭|禁用|讨厌|避免|别|勿|[不没无未非])(?![常但过仅论来来必断错同])"
)
"""A negation in Chinese, except where its character is part of another word."""

CONJUNCTIONS = _words("and but or und aber sondern oder и но а или while whereas während")
"""Words at which a new part of a sentence begins."""

MODALITY = {
    "en": re.compile(
        r"\b(?:will(?! power)|may(?! \d)|(?i:might|could be|could have|probably|perhaps|maybe|may be|likely|possibly|"
        r"presumably|supposedly|apparently|seems?|appears? to|hypothesis|hypothetically|unverified|unconfirmed|"
        r"plan(?:s|ned)? to|planning to|intends? to|about to|assum(?:e|es|ed|ing|ption)|guess(?:es|ed)?|"
        r"suspect(?:s|ed)?|i (?:think|believe))|(?i:going to)(?= [a-z]))\b"
    ),
    "de": re.compile(
        r"\b(?:vielleicht|wahrscheinlich|vermutlich|möglicherweise|eventuell|womöglich|könnten?|dürften?|"
        r"scheint|anscheinend|hypothese|annahme|vermutung|unbestätigt|vermutet|plant|beabsichtigt|hat vor)\b",
        re.IGNORECASE,
    ),
    "ru": re.compile(
        r"\b(?:возможно|вероятно|наверное|наверно|видимо|кажется|может быть|похоже|предположительно|"
        r"гипотеза|предположение|планиру(?:ет|ют|ю)|собира(?:ется|ются|юсь)|намерен[аы]?|буд(?:ет|ут|у))\b",
        re.IGNORECASE,
    ),
    "zh": re.compile(r"可能|也许|大概|或许|似乎|估计|打算|计划要|将要|将会|推测|猜测|猜想|假设"),
}
"""Words that make a statement a guess or a plan, by language."""

DESIRE = _words(
    """
    want wants wanted would like likes request requests requested ask asks asked need needs hope hopes wish wishes
    möchte möchten will wünscht bittet verlangt braucht хочет хотел хотела хочу просит просил просила требует нужен
    нужна нужно надеется
    """
)
"""Words of wanting: what they govern is not said to have happened."""

CJK_DESIRE = re.compile(r"想|要求|希望|需要|请求|请")
APPROXIMATELY = _words(
    "about approximately approx around roughly nearly almost circa ca etwa ungefähr rund knapp около примерно почти"
)
CJK_APPROXIMATELY = ("大约", "大概", "约")
GERMAN_DETERMINERS = re.compile(
    r"(?:d(?:er|ie|as|en|em|es)|(?:k|m|d|s)?ein\w{0,2}|ihre?\w?|unser\w{0,2}|eure?\w?|jede\w?|alle\w?|viele?\w?|"
    r"diese\w?|zu[mr]|[ivb]om|im|am|ins|beim)$"
)
"""Words before a German noun that is no name; names mostly stand without one."""

CORRECTION = re.compile(
    r"\b(?:sorry|actually|correction|rather|instead|i meant|i mean|my mistake|not anymore|no longer|wrong|"
    r"entschuldigung|korrektur|nein|eigentlich|ich meine|ich meinte|stattdessen|doch nicht|falsch|"
    r"извини(?:те)?|вернее|точнее|ошиб(?:ся|лась)|исправ\w*|на самом деле|неверно)\b|^\s*(?:no|нет)\b[\s,]|"
    r"不对|更正|纠正|应该是|其实|说错|抱歉",
    re.IGNORECASE,
)
"""How somebody says that what they said before was wrong."""

CORRECTION_WORDS = _words(
    """
    sorry actually correction rather instead meant mean mistake anymore longer wrong no not entschuldigung korrektur
    nein eigentlich meine meinte stattdessen falsch извини извините вернее точнее ошибся ошиблась неверно нет
    """
)
"""The words of a correction that are no part of what is corrected."""

PLACEHOLDERS = _words(
    """
    nochange nochanges unchanged na none null same sameasbefore noupdate noupdates nothingnew nothing ok done todo tbd
    seeabove asbefore empty keineänderung keineänderungen unverändert wiezuvor безизменений нетизменений
    неизменилось нет 无变化 没有变化 不变 无 无更新
    """
)
"""What a protocol says instead of content, without spaces and punctuation."""

SUCCESS = _words(
    """
    pass passes passed passing works success successful successfully succeed succeeds succeeded green
    erfolgreich erfolg bestanden grün успешно успешен успешна пройден пройдены прошли прошел прошёл
    """
)
FAILURE = _words(
    """
    fail fails failed failing failure failures error errors broken crashed crash
    fehlgeschlagen fehler gescheitert ошибка ошибки ошибок провален провалены упал упали
    """
)

SYNONYMS = tuple(
    _words(meaning)
    for meaning in """
    want wants wanted need needs needed request requests requested ask asks asked wish wishes möchte möchten will
    wollen braucht brauche benötigt wünscht хочет хочу хотел хотела хотят просит просил нужен нужна нужно 想要
    想 需要 要求 ;
    refund refunds reimbursement reimburse erstattung rückerstattung rückzahlung возврат возврата 退款 ;
    prefer prefers preferred preference preferences like likes liked love loves favorite favourite bevorzugt mag
    liebt предпочитает предпочитаю любит люблю нравится 喜欢 偏好 喜爱 ;
    live lives living reside resides residence wohnt wohne lebt lebe живет живёт живу живут 住在 居住 ;
    work works working employed job arbeitet arbeite beruf работает работаю работа 工作 ;
    short brief concise kurz knapp короткий короткие короткими кратко 简短 ;
    long detailed ausführlich lang подробно подробный 详细 ;
    email mail e-mail почта письмо 邮件 邮箱 ;
    phone telephone call calls anruf anrufe telefon телефон звонок звонки 电话 ;
    buy buys bought purchase purchased kaufen gekauft купить купил купила 购买 ;
    start starts started begin begins began beginnt begann начинается начать 开始 ;
    end ends ended finish finishes finished endet beendet заканчивается закончил 结束 ;
    big large huge groß большой 大型 ;
    small little tiny klein маленький 小型 ;
    fast quick quickly schnell быстро быстрый 快速 ;
    slow slowly langsam медленно медленный 缓慢 ;
    child children kid kids kind kinder ребенок ребёнок дети 孩子 ;
    car auto vehicle wagen машина автомобиль 汽车 ;
    order orders purchase-order bestellung bestellungen заказ заказа заказы 订单 ;
    broken damaged defective kaputt beschädigt defekt сломан сломана поврежден повреждена 损坏 ;
    arrive arrives arrived delivered delivery geliefert angekommen lieferung доставлен доставлена доставка пришел
    пришёл пришла 送达 到货 ;
    late delayed delay verspätet verspätung опоздал задержка 延迟 ;
    allergic allergy allergies allergisch allergie аллергия аллергик 过敏 ;
    eat eats eating isst esse essen ест ем 吃 ;
    drink drinks drinking trinkt trinke пьет пьёт пью 喝 ;
    deadline due frist fällig срок дедлайн 截止 ;
    meeting appointment termin besprechung встреча 会议 ;
    answer answers reply replies response responses antwort antworten ответ ответы 回答 ;
    error-prone flaky unstable unreliable instabil нестабильный 不稳定 ;
    """.strip(" ;\n").split(";")
)
"""Words that restate one another, also across languages; a semicolon ends each meaning."""

SYNONYM_PAIRS = {word: f"+{place}" for place, words in enumerate(SYNONYMS) for word in words if len(word) == 2}
"""The same for pairs of Chinese characters."""

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan januar января январь",
            "february feb februar февраля февраль",
            "march mar märz maerz марта март",
            "april apr апреля апрель",
            "may mai мая май",
            "june jun juni июня июнь",
            "july jul juli июля июль",
            "august aug августа август",
            "september sep sept сентября сентябрь",
            "october oct oktober okt октября октябрь",
            "november nov ноября ноябрь",
            "december dec dezember dez декабря декабрь",
        ),
        start=1,
    )
    for name in names.split()
}

NUMBER_WORDS = {
    word: value
    for value, words in {
        0: "zero null ноль",
        2: "two zwei два две",
        3: "three drei три",
        4: "four vier четыре",
        5: "five fünf пять",
        6: "six sechs шесть",
        7: "seven sieben семь",
        8: "eight acht восемь",
        9: "nine neun девять",
        10: "ten zehn десять",
        11: "eleven elf одиннадцать",
        12: "twelve zwölf двенадцать",
    }.items()
    for word in words.split()
}
"""Small numbers as words; `one` is left out because it is an article and a pronoun as well."""

UNITS = {
    spelling: unit
    for unit, spellings in {
        "ms": "ms msec millisecond milliseconds millisekunden мс 毫秒",
        "us": "us µs μs microseconds",
        "s": "s sec secs second seconds sekunde sekunden с сек секунд 秒",
        "min": "min mins minute minutes minuten мин минут минуты 分钟",
        "h": "h hr hrs hour hours stunde stunden ч час часа часов 小时",
        "day": "day days tag tage tagen день дня дней 天",
        "week": "week weeks woche wochen неделя недели недель 周",
        "month": "month months monat monate monaten месяц месяца месяцев",
        "year": "year years jahr jahre jahren год года лет",
        "%": "% percent prozent процент процента процентов",
        "byte": "byte bytes байт байта 字节",
        "kb": "kb kib",
        "mb": "mb mib мб",
        "gb": "gb gib гб",
        "tb": "tb tib",
        "eur": "€ eur euro euros евро 欧元",
        "usd": "$ usd dollar dollars доллар доллара долларов 美元",
        "gbp": "£ gbp",
        "rub": "₽ rub руб рубль рубля рублей",
        "cny": "¥ cny rmb 元",
        "km": "km kilometer kilometers kilometres км",
        "m": "meter meters metres",
        "cm": "cm см",
        "mm": "mm мм",
        "kg": "kg кг",
        "g": "gram grams gramm",
        "deg": "° °c °f degree degrees grad градус градуса градусов 度",
    }.items()
    for spelling in spellings.split()
}
"""Units by every spelling that is read."""

DONE = {
    "cancel": (
        "cancelled canceled storniert gekündigt abgesagt отменен отменён отменена отменено отменил отменила отменили",
        "cancel cancels cancelling stornieren kündigen absagen отменить отмените отмена",
        ("已取消", "取消了"),
        ("取消",),
    ),
    "send": (
        "sent mailed emailed notified verschickt versendet gesendet benachrichtigt отправлен отправлено отправлена "
        "отправил отправила отправили",
        "send sends mail email notify notification senden schicken отправить отправьте",
        ("已发送", "发送了", "已寄出"),
        ("发送", "寄"),
    ),
    "refund": (
        "refunded reimbursed erstattet zurückerstattet возвращен возвращён возвращены вернули",
        "refund refunds reimburse erstatten erstattung возврат вернуть",
        ("已退款", "退款了"),
        ("退款",),
    ),
    "pay": (
        "paid charged billed bezahlt abgebucht belastet оплачен оплачено оплатил оплатили списано списали",
        "pay pays charge charges bill billing payment bezahlen zahlung оплатить оплата",
        ("已支付", "已付款", "支付了", "已扣款"),
        ("支付", "付款"),
    ),
    "book": (
        "booked reserved gebucht reserviert забронирован забронировано забронировал забронировали",
        "book reserve reservation booking buchen reservieren забронировать бронь",
        ("已预订", "预订了"),
        ("预订",),
    ),
    "order": (
        "ordered bestellt заказан заказано заказал заказали",
        "order purchase buy checkout bestellen заказать",
        ("已下单", "下单了"),
        ("下单",),
    ),
    "deploy": (
        "deployed ausgerollt задеплоен развернут развёрнут",
        "deploy deployment release publish rollout deployen veröffentlichen развернуть опубликовать",
        ("已部署", "部署了"),
        ("部署", "发布"),
    ),
    "delete": (
        "deleted removed gelöscht entfernt удален удалён удалена удалено удалил удалили",
        "delete remove rm unlink drop löschen entfernen удалить",
        ("已删除", "删除了"),
        ("删除",),
    ),
    "merge": (
        "merged pushed gemergt gepusht",
        "merge push",
        ("已合并", "合并了"),
        ("合并",),
    ),
    "approve": (
        "approved genehmigt freigegeben одобрен одобрено одобрил одобрили",
        "approve approval genehmigen freigeben одобрить",
        ("已批准", "批准了"),
        ("批准",),
    ),
    "transfer": (
        "transferred überwiesen переведен переведён переведено перевел перевели",
        "transfer transfers wire überweisen überweisung перевести перевод",
        ("已转账", "转账了"),
        ("转账",),
    ),
    "submit": (
        "submitted eingereicht подан подано подал подали",
        "submit file einreichen подать",
        ("已提交", "提交了"),
        ("提交",),
    ),
    "schedule": (
        "scheduled rescheduled terminiert запланирован запланировано",
        "schedule reschedule calendar",
        ("已安排", "安排了"),
        ("安排",),
    ),
}
"""Deeds in the outside world: how they are said to be done, and how they are asked for or named in a tool."""

DONE_FORMS = {word: deed for deed, (done, *_rest) in DONE.items() for word in done.split()}
DEED_WORDS = {word: deed for deed, (done, asked, *_rest) in DONE.items() for word in (*done.split(), *asked.split())}
CJK_DONE = {phrase: deed for deed, (_, _, done, _) in DONE.items() for phrase in done}
CJK_DEEDS = {phrase: deed for deed, (_, _, done, asked) in DONE.items() for phrase in (*done, *asked)}

LATIN_ENDINGS = ("ing", "ed", "es", "er", "en", "em", "ly", "s", "e", "n")
RUSSIAN_ENDINGS = _by_length(
    """
    иями ьего ьему ьем ьей ьих ьим ья ье ьи ью ями ами ией ого его ому ему ыми ими ешь ишь ете ите ться тся ует
    уют ый ий ой ая яя ое ее ые ие ую юю ым им ом ем ей ою ею ах ях ов ев ам ям ью ия ие ию ет ут ют ат ят ит ть
    ла ло ли ил ел ал а я о е ы и у ю ь й л
    """
)
RUSSIAN_NOUN_ENDINGS = _by_length(
    "ами ями ого ому ой ей ою ею ом ем ым ах ях ов ев ам ям ия ие ию ии ую ая а я о е ы и у ю ь й"
)
"""Endings that are taken off a word, the longest first."""
