"""What content of strangers means for the calls after it: who asks, who does not, and what is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from toolcrib.core.permission import Decision, Effect
from toolcrib.core.session import Audience, SessionApprovals, SessionState
from toolcrib.core.tool import Annotations, Tool
from toolcrib.policy.decision import Policy, approved_as
from toolcrib.policy.rule_layers import RuleLayers
from toolcrib.policy.rules import parse_rules
from toolcrib.policy.taint import Taint, links_in

READ = Annotations(read_only=True, destructive=False)
LOCAL_READ = Annotations(read_only=True, destructive=False, open_world=False)
WRITE = Annotations(destructive=False)
LOCAL_WRITE = Annotations(destructive=False, open_world=False)


def tool(name: str, annotations: Annotations = WRITE, origin: str = "mcp", **fields: Any) -> Tool:
    return Tool(name=f"mail__{name}", source="mail", local_name=name, annotations=annotations, origin=origin, **fields)


INBOX = tool("read_inbox", READ)
SEND = tool("send")


def decide(
    target: Tool,
    arguments: Mapping[str, Any] | None = None,
    *,
    session: SessionState | None = None,
    taint: Taint | None = None,
    **rules: list[str],
) -> Decision:
    state = session or tainted()
    policy = Policy(RuleLayers(parse_rules(cast("Mapping[Effect, list[str]]", rules))), taint=taint)
    return policy.decide(target, arguments or {}, state)


def tainted(
    mode: str = "autonomous", *, text: str = "", source: Tool = INBOX, taint: Taint | None = None
) -> SessionState:
    session, taint = SessionState(key="k", mode=mode), taint or Taint()
    taint.note(source, taint.trust_of(source), session, text, is_strict=False)
    return session


def test_content_of_nobody_else_leaves_the_answers_of_a_session_as_they_are() -> None:
    session = SessionState(key="k", approvals=SessionApprovals(remembered={"a": "allow"}))

    Taint().mark_tainted_by("", session)

    assert (session.taint.source, session.approvals.remembered) == ("", {"a": "allow"})


@pytest.mark.parametrize(
    ("origin", "fields", "trust"),
    [
        ("mcp", {}, "untrusted"),
        ("openapi", {}, "untrusted"),
        ("python", {}, "local"),
        ("python", {"traits": ("untrusted",)}, "untrusted"),
        ("mcp", {"traits": ("reviewed",)}, "reviewed"),
    ],
)
def test_the_trust_of_a_tool_is_that_of_its_origin_unless_it_says_otherwise(
    origin: str, fields: dict[str, Any], trust: str
) -> None:
    assert Taint().trust_of(tool("t", READ, origin, **fields)) == trust


def test_settings_vouch_for_a_source_or_a_tool_and_distrust_comes_first() -> None:
    assert Taint(trusted=("mail",)).trust_of(INBOX) == "reviewed"
    assert Taint(trusted=("mail__read_*",)).trust_of(INBOX) == "reviewed"
    assert Taint(trusted=("mail",), untrusted=("mail__read_inbox",)).trust_of(INBOX) == "untrusted"
    assert Taint(untrusted=("mail",)).trust_of(tool("t", READ, "python")) == "untrusted"


@pytest.mark.parametrize(
    ("annotations", "origin"),
    [(WRITE, "mcp"), (Annotations(), "mcp"), (LOCAL_WRITE, "python")],
    ids=["write", "destructive", "local"],
)
def test_after_untrusted_content_a_side_effect_asks_also_in_autonomous_mode_naming_what_tainted(
    annotations: Annotations, origin: str
) -> None:
    target = tool("send", annotations, origin)
    assert decide(target, session=SessionState(key="k", mode="autonomous")).effect == "allow"
    found = decide(target)
    assert (found.effect, "mail__read_inbox" in found.rule, "mail__send" in found.rule) == ("ask", True, True)


def test_a_read_goes_on_as_before() -> None:
    assert decide(INBOX).effect == "allow"
    assert decide(tool("list", LOCAL_READ, "python")).effect == "allow"


@pytest.mark.parametrize(
    "source",
    [tool("w", WRITE, "python"), tool("r", READ, "python"), tool("r", READ, "plugin"), tool("r", traits=("reviewed",))],
)
def test_results_of_this_process_and_of_what_the_operator_trusts_taint_nothing(source: Tool) -> None:
    assert tainted(source=source).taint.source == ""


@pytest.mark.parametrize("annotations", [READ, LOCAL_READ, WRITE, Annotations()])
@pytest.mark.parametrize("origin", ["mcp", "openapi", "rest", "a kind of tomorrow"])
def test_every_other_result_taints_whatever_the_server_declares(origin: str, annotations: Annotations) -> None:
    assert tainted(source=tool("t", annotations, origin)).taint.source == "mail__t"


def test_a_receipt_of_a_side_effect_taints_no_client_unless_its_tool_is_untrusted_or_the_guard_on() -> None:
    def taints(source: Tool, taint: Taint, *, is_strict: bool = False) -> bool:
        session = SessionState(key="k", mode="autonomous", audience=Audience(is_client=True))
        taint.note(source, taint.trust_of(source), session, "sent", is_strict=is_strict)
        return bool(session.taint.source)

    sent, read = tool("send", WRITE), tool("read", READ)
    found = [taints(sent, Taint()), taints(sent, Taint(untrusted=("mail",))), taints(read, Taint())]
    assert [*found, taints(sent, Taint(), is_strict=True)] == [False, True, True, True]


def test_a_tool_that_is_declared_untrusted_taints_with_whatever_it_returns() -> None:
    taint = Taint(untrusted=("mail__send",))
    assert tainted(source=SEND, taint=taint).taint.source == "mail__send"


@pytest.mark.parametrize("rule", ["mail__send", "mail__send(to=*@here.example)", "mcp__mail__send"])
def test_a_rule_that_names_the_tool_lets_it_run(rule: str) -> None:
    assert decide(SEND, {"to": "a@here.example"}, allow=[rule]).effect == "allow"
    assert decide(SEND, {"to": "a@here.example"}, allow=["*", rule]).effect == "allow"


@pytest.mark.parametrize("rule", ["*", "mail__*", "kind:write", "mcp__mail"])
def test_a_rule_for_many_tools_does_not_name_one(rule: str) -> None:
    assert decide(SEND, allow=[rule]).effect == "ask"


def test_a_deny_stays_a_deny() -> None:
    assert decide(SEND, deny=["mail__send"]).effect == "deny"
    assert decide(SEND, deny=["mail__send"], allow=["mail__send"]).effect == "deny"


def test_what_was_answered_before_the_content_was_read_holds_no_longer_and_what_is_answered_after_does() -> None:
    session = SessionState(
        key="k", mode="cautious", approvals=SessionApprovals(remembered={approved_as(SEND): "allow", "mail__x": "deny"})
    )
    assert decide(SEND, session=session).effect == "allow"
    Taint().note(INBOX, "untrusted", session, "", is_strict=False)
    assert (decide(SEND, session=session).effect, dict(session.approvals.remembered)) == ("ask", {"mail__x": "deny"})
    session.approvals.remembered[approved_as(SEND)] = "allow"
    assert decide(SEND, session=session).effect == "allow"


def test_a_tool_that_never_asks_and_reaches_nobody_outside_runs() -> None:
    assert decide(tool("note", LOCAL_WRITE, "python", approval="never")).effect == "allow"
    assert decide(tool("post", WRITE, "python", approval="never")).effect == "ask"


@pytest.mark.parametrize(
    ("source", "traits", "effect"),
    [
        ("builtin", ("hands_on",), "allow"),
        ("builtin", (), "ask"),
        ("mail", ("hands_on",), "ask"),
        ("jobs", (), "allow"),
        ("toolcrib", (), "allow"),
    ],
)
def test_a_tool_that_only_passes_calls_on_leaves_the_asking_to_them(
    source: str, traits: tuple[str, ...], effect: str
) -> None:
    passing = Tool(name="run", source=source, local_name="run", annotations=LOCAL_WRITE, origin="python", traits=traits)
    assert decide(passing).effect == effect


def test_the_setting_switches_the_asking_off() -> None:
    assert decide(SEND, taint=Taint(ask=False)).effect == "allow"


def test_a_guard_that_is_switched_on_asks_and_takes_the_word_of_the_operator_as_before() -> None:
    link = {"url": "https://outside.example/?q=the-secret"}
    for trusted, effect in (((), "ask"), (("mail__fetch",), "allow")):
        policy = Policy(taint=Taint(ask=False, trusted=trusted), is_strict=lambda: True)
        assert policy.decide(tool("fetch", LOCAL_READ), link, tainted()).effect == effect


@pytest.mark.parametrize(
    ("arguments", "effect"),
    [
        ({"url": "https://outside.example/?q=the-secret"}, "ask"),
        ({"url": "outside.example"}, "ask"),
        ({"query": "see www.outside.example/secret"}, "ask"),
        ({"pages": [{"link": "x"}]}, "ask"),
        ({"query": "the weather"}, "allow"),
        ({}, "allow"),
    ],
)
def test_a_read_of_the_world_outside_asks_when_it_follows_a_link(arguments: dict[str, Any], effect: str) -> None:
    assert decide(tool("fetch", READ), arguments).effect == effect
    assert decide(tool("fetch", LOCAL_READ), arguments).effect == effect


def test_a_closed_world_counts_where_the_operator_or_this_process_declares_it() -> None:
    link = {"url": "https://outside.example/?q=the-secret"}
    assert decide(tool("fetch", LOCAL_READ, "python"), link).effect == "allow"
    assert decide(tool("fetch", LOCAL_READ, traits=("reviewed",)), link).effect == "allow"
    assert decide(tool("fetch", LOCAL_READ, traits=("closed_world",)), link).effect == "allow"
    assert decide(tool("fetch", READ, traits=("closed_world",)), link).effect == "ask"
    assert decide(tool("fetch", LOCAL_READ), link, taint=Taint(trusted=("mail__fetch",))).effect == "allow"


def test_a_link_that_was_shown_is_followed_as_it_stands_and_in_no_other_form() -> None:
    session = tainted(text="Read <https://news.example/a> (or www.wiki.example/b).")
    fetch = tool("fetch", READ)
    asked = {link: decide(fetch, {"url": link}, session=session).effect for link in (
        "https://news.example/a", "www.wiki.example/b", "https://news.example/a?d=secret", "https://news.example",
    )}  # fmt: skip
    assert list(asked.values()) == ["allow", "allow", "ask", "ask"]


def test_private_data_and_untrusted_content_together_ask_before_anything_goes_out_whatever_the_rules_say() -> None:
    session = tainted(text="https://news.example/a")
    files = tool("read_file", LOCAL_READ, "python", traits=("private",))
    Taint().note(files, "local", session, "the secret", is_strict=False)
    fetch = tool("fetch", READ)
    rule = decide(SEND, session=session, allow=["mail__send"]).rule
    assert ("mail__read_file" in rule, "mail__read_inbox" in rule) == (True, True)
    assert decide(fetch, {"url": "https://news.example/a"}, session=session, allow=["mail__fetch"]).effect == "ask"
    assert decide(fetch, {"query": "the weather"}, session=session).effect == "allow"
    local = tool("save", LOCAL_WRITE, "python")
    assert decide(local, session=session, allow=["mail__save"]).effect == "allow"


def test_settings_say_what_is_private_and_what_goes_out() -> None:
    taint = Taint(private=("mail__read_file",), outbound=("mail__search",))
    session = tainted(taint=taint)
    taint.note(tool("read_file", LOCAL_READ, "python"), "local", session, "", is_strict=False)
    assert session.taint.private_read_by == "mail__read_file"
    assert decide(tool("search", LOCAL_READ, "python"), session=session, taint=taint).effect == "ask"


def test_arguments_too_deep_to_be_looked_at_count_as_links() -> None:
    deep: Any = {"a": "x"}
    for _ in range(20):
        deep = {"a": deep}
    assert decide(tool("fetch", READ), deep).effect == "ask"


def test_only_the_newest_links_are_remembered() -> None:
    session = tainted(text=" ".join(f"https://h.example/{number}" for number in range(3000)))
    links = session.taint.links
    assert (len(links), "https://h.example/2999" in links, "https://h.example/0" in links) == (2048, True, False)


def test_links_are_found_without_the_punctuation_around_them() -> None:
    text = 'See https://a.example/x?y=1, (www.b.example). "HTTP://C.example/"! no.link here'
    assert list(links_in(text)) == ["https://a.example/x?y=1", "www.b.example", "HTTP://C.example/"]
