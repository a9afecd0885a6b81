"""The loop check in languages other than English, by words and with an embedder."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from otel_agentguard.checks.loop import LoopCheck
from otel_agentguard.engine import Engine
from otel_agentguard.events import Effect, Event, Message
from otel_agentguard.findings import Action, Finding, Kind
from otel_agentguard.fingerprint import text_digest
from otel_agentguard.protocols import Embedder
from otel_agentguard.testing import tool_call

REWORDED = {
    "German": [
        "Wo steht die Adresse der Mieterin im Vertrag",
        "Bitte suche die Adresse der Mieterin im Vertrag heraus",
        "Welche Adresse der Mieterin nennt der Vertrag",
        "Die Adresse der Mieterin laut Vertrag",
        "Nenne mir aus dem Vertrag die Adresse der Mieterin",
        "Adresse der Mieterin, wie sie im Vertrag steht",
    ],
    "Chinese": [
        "合同里租客的地址是什么",
        "请在合同中查找租客的地址",
        "租客的地址在合同的哪里",
        "合同中写的租客地址",
        "请告诉我合同里租客的地址",
        "查询合同里租客的地址信息",
    ],
    "Japanese": [
        "契約書の借主の住所はどこですか",
        "契約書から借主の住所を探してください",
        "借主の住所は契約書のどこにありますか",
        "契約書に書かれた借主の住所",
        "契約書にある借主の住所を教えてください",
        "契約書で借主の住所を調べてください",
    ],
}
NOTHING_NEW = {
    "German": "Der Vertrag wurde gelesen, doch über die Mieterin steht dort nur, dass sie im Mai eingezogen ist.",
    "Chinese": "合同已经读过了，但是关于租客只写着她是五月搬进来的，没有别的信息。",
    "Japanese": "契約書を読みましたが、借主については五月に入居したことだけが書かれています。",
}
WORK = {
    "German": [
        ("Wo steht die Adresse der Mieterin im Vertrag", "Sie wohnt in der Lindenstraße, gleich neben der alten Post."),
        ("Seit wann läuft der Vertrag der Mieterin", "Er beginnt im Mai und endet nach drei Jahren von selbst."),
        ("Welche Kaution nennt der Vertrag der Mieterin", "Drei Monatsmieten, zahlbar in zwei gleichen Raten."),
        ("Wer haftet laut Vertrag für den Garten", "Der Eigentümer pflegt den Garten, sie mäht nur den Rasen."),
        ("Sind laut Vertrag Haustiere erlaubt", "Eine Katze ist gestattet, Hunde nur nach schriftlicher Zusage."),
        ("Was sagt der Vertrag zur Heizung", "Abgerechnet wird jährlich nach Verbrauch der einzelnen Wohnung."),
        ("Wie wird der Vertrag gekündigt", "Schriftlich, mit einer Frist von neunzig Tagen zum Quartal."),
    ],
    "Chinese": [
        ("合同里租客的地址是什么", "她住在林荫路旧邮局旁边的二层小楼。"),
        ("租客的合同从什么时候开始", "五月一日生效，三年以后自动结束。"),
        ("合同规定的押金是多少", "三个月房租，可以分两次付清。"),
        ("合同里花园由谁负责", "房东照顾树木，草坪每周修剪一回。"),
        ("合同是否允许养宠物", "猫可以，狗必须得到书面同意。"),
        ("合同怎么说暖气费用", "按照每户实际消耗年终结算。"),
        ("合同如何解除", "提前九十天寄挂号信通知对方。"),
    ],
    "Japanese": [
        ("契約書の借主の住所はどこですか", "古い郵便局の隣、菩提樹通りの二階建てです。"),
        ("契約はいつから始まりますか", "五月一日に発効し、三年後に自動終了します。"),
        ("敷金はいくらですか", "家賃三か月分を二回に分けて支払います。"),
        ("庭の手入れは誰がしますか", "樹木は大家が、芝刈りは毎週入居者が行います。"),
        ("ペットは飼えますか", "猫は可能、犬には書面による承諾が必要です。"),
        ("暖房費はどう計算されますか", "各戸の使用量に応じて年末に精算されます。"),
        ("解約の方法は何ですか", "九十日前までに書留郵便で通知します。"),
    ],
}


def asked(questions: Sequence[tuple[str, str]], embedder: Embedder | None = None) -> list[Finding]:
    """What is found in a run that asks one question after the other."""
    events = [tool_call("ask", {"question": question}, answer, effect=Effect.READ) for question, answer in questions]
    return found(events, embedder)


def found(events: Sequence[Event], embedder: Embedder | None = None) -> list[Finding]:
    engine = Engine(checks=[LoopCheck(embedder)])
    run = engine.open("r")
    return [
        finding for event in events for finding in engine.observe(run, event).findings if finding.action >= Action.HINT
    ]


@pytest.mark.parametrize("language", REWORDED)
def test_one_question_in_other_words_is_seen_when_its_answers_bring_nothing_new(language: str) -> None:
    questions = [
        (question, f"{NOTHING_NEW[language]} ({number})") for number, question in enumerate(REWORDED[language])
    ]

    findings = asked(questions)

    assert [(finding.kind, finding.step, finding.action) for finding in findings] == [(Kind.SEMANTIC, 6, Action.HINT)]


@pytest.mark.parametrize("language", WORK)
def test_questions_whose_answers_are_new_are_work(language: str) -> None:
    assert asked(WORK[language]) == []


@pytest.mark.parametrize("language", WORK)
def test_questions_whose_answers_are_new_are_work_for_an_embedder_too(language: str) -> None:
    pytest.importorskip("wordllama", reason="pip install 'otel-agentguard[semantic]'")
    from otel_agentguard.embedders import open_embedder

    assert asked(WORK[language], open_embedder("wordllama")) == []


PARAPHRASED = {
    "English": [
        "where is the configuration file of the web server",
        "find the location of the server's config",
        "which folder holds web server settings",
        "path to server config files please",
        "web server configuration directory location",
        "locate the server's settings file",
        "what directory contains the configs for the web server",
    ],
    "Chinese": [
        "服务器配置文件的位置",
        "网站设置保存在哪个文件夹",
        "服务器的设置放在什么地方",
        "网站服务器配置存放路径",
        "哪个目录有服务器设置文件",
        "配置文件路径是哪一个",
        "服务器文件夹设置位置",
    ],
}
NO_ENTRY = {
    "English": "The knowledge base has no entry about this that would help any further.",
    "Chinese": "知识库里没有任何相关的条目可以帮助您。",
}


@pytest.mark.parametrize("language", PARAPHRASED)
def test_an_embedder_sees_one_question_where_the_words_differ(language: str) -> None:
    pytest.importorskip("wordllama", reason="pip install 'otel-agentguard[semantic]'")
    from otel_agentguard.embedders import open_embedder

    questions = [
        (question, f"{NO_ENTRY[language]} ({number})") for number, question in enumerate(PARAPHRASED[language])
    ]

    by_words = asked(questions)
    by_meaning = asked(questions, open_embedder("wordllama"))

    assert [(finding.kind, finding.step) for finding in by_meaning] == [(Kind.SEMANTIC, 6)]
    assert all(finding.step > 6 for finding in by_words)


TALK = {
    "German": [
        ("autor", "Könntest du bitte den Entwurf des Berichts noch einmal gründlich prüfen?"),
        ("prüfer", "Gern, aber könntest du den Entwurf des Berichts vorher gründlich überarbeiten?"),
        ("autor", "Bitte prüfe den Entwurf des Berichts gründlich, dann überarbeiten wir."),
        ("prüfer", "Bitte überarbeiten, dann prüfe ich den Entwurf des Berichts gründlich."),
        ("autor", "Erst gründlich prüfen, dann den Entwurf des Berichts überarbeiten."),
        ("prüfer", "Erst den Entwurf des Berichts überarbeiten, dann gründlich prüfen."),
    ],
    "Chinese": [
        ("作者", "请你再仔细检查一下报告的草稿好吗？"),
        ("审稿人", "好的，不过请你先仔细修改报告的草稿。"),
        ("作者", "请先仔细检查报告的草稿，然后再修改。"),
        ("审稿人", "请先修改报告的草稿，然后再仔细检查。"),
        ("作者", "先仔细检查报告的草稿，再修改草稿。"),
        ("审稿人", "先修改报告的草稿，再仔细检查草稿。"),
    ],
    "Japanese": [
        ("著者", "報告書の草案をもう一度詳しく確認してください。"),
        ("査読者", "その前に報告書の草案を詳しく修正してください。"),
        ("著者", "報告書の草案を詳しく確認してから修正します。"),
        ("査読者", "報告書の草案を修正してから詳しく確認します。"),
        ("著者", "まず報告書の草案を詳しく確認してください。"),
        ("査読者", "まず報告書の草案を詳しく修正してください。"),
    ],
}


@pytest.mark.parametrize("language", TALK)
def test_agents_that_tell_each_other_the_same_in_other_words_are_seen_in_the_third_round(language: str) -> None:
    findings = found([Message(agent=agent, text=text, digest=text_digest(text)) for agent, text in TALK[language]])

    assert [(finding.kind, finding.step) for finding in findings] == [(Kind.PINGPONG, 6)]


PROGRESS = {
    "German": [
        ("autor", "Der erste Absatz nennt jetzt die Umsatzzahlen vom Frühjahr."),
        ("prüfer", "In der Tabelle fehlt noch die Spalte für Österreich."),
        ("autor", "Spalte ergänzt, dazu eine Fußnote über Wechselkurse."),
        ("prüfer", "Das Diagramm auf Seite vier hat keine Achsenbeschriftung."),
        ("autor", "Achsen beschriftet, Legende nach unten verschoben."),
        ("prüfer", "Damit ist der Bericht druckreif, ich gebe ihn frei."),
    ],
    "Chinese": [
        ("作者", "第一段现在写明了春季销售数字。"),
        ("审稿人", "表格里还缺少奥地利那一列。"),
        ("作者", "已经补上，并加了汇率脚注。"),
        ("审稿人", "第四页图表没有坐标轴标签。"),
        ("作者", "标签加好了，图例移到下方。"),
        ("审稿人", "可以付印，我批准发布。"),
    ],
    "Japanese": [
        ("著者", "第一段落に春の売上高を記載しました。"),
        ("査読者", "表にオーストリアの列が欠けています。"),
        ("著者", "列を追加し、為替の脚注も付けました。"),
        ("査読者", "四ページの図に軸ラベルがありません。"),
        ("著者", "ラベルを入れ、凡例を下へ移しました。"),
        ("査読者", "印刷できる状態です。公開を承認します。"),
    ],
}


@pytest.mark.parametrize("language", PROGRESS)
def test_agents_that_get_on_are_left_alone(language: str) -> None:
    assert (
        found([Message(agent=agent, text=text, digest=text_digest(text)) for agent, text in PROGRESS[language]]) == []
    )


@pytest.mark.parametrize("answer", ["没有找到结果", "見つかりませんでした", "Keine Treffer"])
def test_an_empty_answer_is_named_as_one(answer: str) -> None:
    findings = asked([("x", answer)] * 3)

    assert "The empty answer is the answer" in findings[0].message
