"""The same fact in other words is the same fact; another number, name or denial is not."""

from __future__ import annotations

import pytest
from memory_runs import tool, user, verdict, write

SAID = [
    ("I want a refund", "customer wants a refund"),
    ("Hi, I'm Priya and I moved to Lisbon last month. I live near the river.", "User Priya lives in Lisbon"),
    ("please never call me before nine in the morning", "no calls before 9"),
    ("Our budget is 2,500 euros", "budget: 2500 EUR"),
    ("I'm allergic to peanuts", "User has a peanut allergy"),
    ("My daughter Mia turns 7 on the 12th of May", "daughter Mia, birthday 12 May"),
    ("deadline is next Friday, 2026-12-04", "Deadline: 4 December 2026"),
    ("I don't eat meat", "vegetarian: does not eat meat"),
    ("I hate tabs", "user dislikes tabs"),
    ("My laptop has 16 GB RAM", "laptop RAM: 16GB"),
    ("Prefer pnpm over npm in this repo.", "use pnpm instead of npm"),
    ("I have two cats, Luna and Milo", "has 2 cats: Luna and Milo"),
    ("My manager is Ines. She approves budgets above 10k.", "Ines approves budgets above 10000"),
    ("Ich wohne in Köln und heiße Jürgen", "User's name is Jürgen, lives in Köln"),
    ("Ich trinke keinen Kaffee, nur Tee", "trinkt Tee, keinen Kaffee"),
    ("Bestellung 4411 ist noch nicht angekommen", "order 4411 has not arrived"),
    ("Мне нужен возврат за заказ 5512", "клиент хочет возврат за заказ 5512"),
    ("Я живу в Томске.", "User lives in Tomsk"),
    ("Моя дочь Аня учится в третьем классе", "дочь Аня, третий класс"),
    ("我住在上海，喜欢喝茶", "用户住在上海，喜欢喝茶"),
    ("我的生日是5月12日", "用户生日：5月12日"),
]
NOT_SAID = [
    ("My order arrived broken", "the customer wants a refund"),
    ("please never call me before nine in the morning", "call before 9"),
    ("Our budget is 2,500 euros", "budget: 5200 EUR"),
    ("Our budget is 2,500 euros", "budget: 2500 USD"),
    ("I don't eat meat", "User eats meat"),
    ("I eat meat", "User does not eat meat"),
    ("I hate tabs", "user prefers tabs"),
    ("My flight is on the 14th of March", "Flight on 15 March"),
    ("My manager is Ines.", "manager is Inga"),
    ("Alice approved the budget of 500", "Bob approved the budget of 500"),
    ("My dog is Rex", "The cat is called Rex and likes fish"),
    ("Ich wohne in Köln", "wohnt in Bonn"),
    ("Ich esse kein Fleisch", "isst Fleisch"),
    ("Я живу в Томске", "живёт в Омске"),
    ("Я не ем мясо", "пользователь ест мясо"),
    ("我住在上海", "用户住在北京"),
    ("我不吃肉", "用户吃肉"),
    ("我女儿叫小美", "女儿叫小丽"),
]
SHOWN = [
    ("5 passed in 0.20s", "Suite passes (5 tests)"),
    ("Tests passed: 5, failed: 0", "All tests pass"),
    ("lint: 0 errors, 3 warnings", "lint shows 3 warnings and no errors"),
    ("p50 38 ms, p99 412 ms, 2000 requests", "p99 is 412 ms"),
    ("p50 38 ms, p99 412 ms", "p99 is about 400 ms"),
    ("3 of 3 replicas ready", "3 of 3 replicas are ready"),
    ("The server may answer 429", "the server can answer 429"),
    ({"name": "Bob", "plan": "pro", "seats": 12}, "Bob has the pro plan with 12 seats"),
    ('{"name":"Bob","plan":"pro","seats":12}', {"plan": "pro", "seats": 12}),
    ("README.md\nsrc\ntests\npyproject.toml", "repo has src and tests folders"),
    ("Error budget remaining: 37.5%", "37.5 percent of the error budget is left"),
    ("Temperature in Oslo: -5 °C", "Oslo is at -5 degrees"),
    ("def sweep():  # line 120\n    free(live)\n# gc.rs", "gc.rs frees live objects in sweep, line 120"),
    ('{"status": "refunded", "order": 4411}', "order 4411 was refunded"),
    ('{"active": false, "name": "job7"}', "job7 is not active"),
    ("Die Rechnung R-77 ist offen, fällig am 12.05.2026", "Rechnung R-77 ist am 12. Mai 2026 fällig"),
]
NOT_SHOWN = [
    ("3 failed, 2 passed", "test suite passes"),
    ("lint: 3 errors, 0 warnings", "lint has no errors"),
    ("p50 38 ms, p99 412 ms, 2000 requests", "p99 is 421 ms"),
    ("p50 38 ms, p99 412 ms, 2000 requests", "p50 is 412 ms"),
    ("p50 38 ms, p99 412 ms, 2000 requests", "p99 is 412 s"),
    ("alice: 3 open tickets, bob: 5 open tickets", "alice has 5 open tickets"),
    ("user profile: tier silver", "user has gold tier"),
    ("feature flag dark_mode: off", "dark_mode is on"),
    ('{"active": false, "name": "job7"}', "job7 is active"),
    ("Error budget remaining: 37.5%", "error budget left: 73.5%"),
    ("ticket PRJ-88 assigned to Lena", "PRJ-88 is assigned to Omar"),
    ("commit 9f3ab21 Fix race", "race fixed in commit 9f3ab12"),
    ("no documents found", "orders are archived by the bin icon, there is no archive button"),
    ("Total: 12.50 EUR", "total is 12.50 USD"),
    ("1 of 3 replicas ready", "3 of 3 replicas are ready"),
    ("The cache may be stale", "the cache is stale"),
]


@pytest.mark.parametrize(("said", "claim"), SAID)
def test_what_a_user_said_passes_in_other_words(said: str, claim: object) -> None:
    assert verdict(user(said), write(claim, source="user")) == "verified"


@pytest.mark.parametrize(("said", "claim"), NOT_SAID)
def test_what_a_user_did_not_say_does_not_pass(said: str, claim: object) -> None:
    assert verdict(user(said), write(claim, source="user")) == "unsupported"


@pytest.mark.parametrize(("result", "claim"), SHOWN)
def test_what_a_tool_showed_passes_in_other_words(result: object, claim: object) -> None:
    assert verdict(tool(result), write(claim, source="tool")) == "verified"


@pytest.mark.parametrize(("result", "claim"), NOT_SHOWN)
def test_what_a_tool_did_not_show_does_not_pass(result: object, claim: object) -> None:
    assert verdict(tool(result), write(claim, source="tool")) == "unsupported"


def test_what_the_call_was_about_need_not_stand_in_its_result() -> None:
    assert verdict(tool("pending", "get_status", {"order": 77}), write("order 77 is pending")) == "verified"


def test_what_the_call_was_about_shows_nothing_by_itself() -> None:
    assert verdict(tool("pending", "get_status", {"order": 77}), write("order 77 is shipped")) == "unsupported"


@pytest.mark.parametrize(("answer", "expected"), [("true", "verified"), ("false", "unsupported")])
def test_a_bare_yes_or_no_answers_what_the_call_asked(answer: str, expected: str) -> None:
    call = tool(f"result: {answer}", "is_feature_enabled", {"name": "export"})

    assert verdict(call, write("feature export is enabled")) == expected


def test_a_guess_in_an_argument_does_not_come_out_as_a_fact() -> None:
    assert verdict(tool("p99 412 ms", "search", {"q": "p99 is 214 ms"}), write("p99 is 214 ms")) == "unsupported"


def test_two_sources_can_show_together_what_neither_shows_alone() -> None:
    assert (
        verdict(
            user("The customer is Anna Schmidt."),
            tool("Anna Schmidt, tier gold"),
            write("Anna Schmidt is a gold customer"),
        )
        == "verified"
    )


def test_a_file_that_another_agent_read_is_evidence_for_all() -> None:
    read_file = tool(
        "// gc.rs\nfn sweep() { /* line 120 */ free(live); }", "read_file", {"path": "gc.rs"}, agent="auditor"
    )

    assert verdict(read_file, write("gc.rs frees live objects in sweep, line 120", agent="lead")) == "verified"


def test_an_inference_has_to_stand_there_almost_word_for_word() -> None:
    claim = "user is a beginner in Python"

    assert verdict(user("How do I reverse a list in Python?"), write(claim, source="inferred")) == "unsupported"


def test_what_a_tool_was_declared_to_set_is_set() -> None:
    call = tool("ok", "set_flag", {"flag": "beta"}, effect="write")  # type: ignore[arg-type]

    assert verdict(call, write("the beta flag is set")) == "verified"
