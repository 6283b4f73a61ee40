"""Rules: what they mean, in which order they speak, and that a broken one is never a rule that is not there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolcrib.core.permission import Decision, Effect
from toolcrib.core.tool import Annotations, Tool
from toolcrib.errors import ConfigError
from toolcrib.policy.rules import Rules, parse_rule, parse_rules


def tool(name: str = "git__push", **changes: Any) -> Tool:
    source, _, local = name.partition("__")
    return Tool(name=name, source=source, local_name=local, **changes)


PUSH = tool()
READ = tool("fs__read_file", annotations=Annotations(read_only=True), aliases=("Read",))


def effect(arguments: Mapping[str, Any], target: Tool = PUSH, **rules: list[str]) -> str | None:
    texts: dict[Effect, list[str]] = {"deny": rules.get("deny", []), "ask": rules.get("ask", [])}
    texts["allow"] = rules.get("allow", [])
    decision = Rules(parse_rules(texts)).decide(target, arguments)
    return decision.effect if decision else None


# Which tools a rule means

_DENIALS = ["fs__*", "*", "*__p?sh", "a*b*a", "?__bca", "mcp__*__*", "*_", "x*y", "????", "git__*l*", "R*d"]


def test_a_word_for_several_tools_denies_every_call_of_each() -> None:
    shell = tool("own__run", category="shell")

    assert [Rules(parse_rules({"deny": ["Bash"]})).denies_always(one) for one in (shell, PUSH)] == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        "fs__read_file",
        "fs__*",
        "fs__read_????",
        "*",
        "Read",
        "mcp__fs__read_file",
        "mcp__fs__*",
        "mcp__fs",
        "kind:read",
        "fs__read_file()",
        "fs__read_file(*)",
        " fs__read_file ",
    ],
)
def test_a_rule_means_a_tool_by_each_of_its_names(text: str) -> None:
    assert effect({}, READ, deny=[text]) == "deny"
    assert effect({}, PUSH, deny=[text]) == ("deny" if text == "*" else None)
    assert [Rules(parse_rules({"deny": [text]})).denies_always(one) for one in (READ, PUSH)] == [True, text == "*"]


@pytest.mark.parametrize(
    "text", ["fs__read", "read_file", "fs", "FS__read_file", "mcp__f", "kind:write", "fs__read_file_"]
)
def test_a_rule_does_not_mean_a_tool_with_a_similar_name(text: str) -> None:
    assert effect({}, READ, deny=[text]) is None


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("files__read", {"name": "files__read"}),
        ("mcp__files__*", {"source": "files"}),
        ("mcp__fs__look", {"local_name": "look"}),
        ("mcp__fs__look*", {"original_name": "look_at"}),
        ("Look", {"aliases": ("Look",)}),
    ],
)
def test_a_rule_means_a_tool_by_the_names_that_it_has_now(text: str, changes: dict[str, Any]) -> None:
    rules, changed = Rules(parse_rules({"deny": [text]})), replace(READ, **changes)

    assert [rules.denies_always(one) for one in (READ, changed, READ)] == [False, True, False]
    assert [effect({}, one, deny=[text]) for one in (READ, changed, READ)] == [None, "deny", None]


@given(st.lists(st.sampled_from([*_DENIALS, "git__pull", "mcp__fs", "Bash", "kind:write", "Read", "git__push(*)"])))
def test_a_tool_is_denied_always_where_one_of_the_rules_means_it(texts: list[str]) -> None:
    rules = parse_rules({"deny": texts})
    tools = (PUSH, READ, tool("a__bca"), tool("own__run", category="shell"), replace(READ, name="x\ny", source="x\ny"))

    assert [Rules(rules).denies_always(one) for one in tools] == [
        any(rule.concerns(one) for rule in rules) for one in tools
    ]


def test_an_alias_that_a_server_gives_its_tool_is_no_name_that_is_allowed() -> None:
    served = replace(READ, origin="mcp")

    assert [effect({}, one, allow=["Read"]) for one in (READ, served, READ)] == ["allow", None, "allow"]


def test_a_server_with_a_dash_or_a_dot_is_meant_as_claude_code_writes_it() -> None:
    dotted = Tool(name="my_server__do_it", source="my.server", local_name="do/it")

    assert effect({}, dotted, deny=["mcp__my_server__do_it"]) == "deny"


def test_a_rule_for_one_tool_does_not_allow_a_server_of_the_same_name() -> None:
    other = Tool(name="a__b__drop", source="a__b", local_name="drop")

    assert effect({}, other, allow=["mcp__a__b"]) is None


# Conditions


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("branch=main", "main", True),
        ("branch=main", "mainline", False),
        ("branch=release/*", "release/1/2", True),
        ("branch=*/hotfix", "a\nb/hotfix", True),
        ("branch=v?.?", "v1.2", True),
        (r"branch=\*", "*", True),
        (r"branch=\*", "x", False),
        ("branch='a, b'", "a, b", True),
        ("branch=''", "", True),
        ("branch!=main", "dev", True),
        ("branch!=main", "main", False),
        ("branch=true", True, True),
        ("branch=null", None, True),
        ("branch=3", 3, True),
        ("branch=3", 3.0, True),
        ("branch=3", 3.5, False),
        ("branch='a'\"b\"", "a'\"b", False),
        ("branch>100", 101, True),
        ("branch>100", 100, False),
        ("branch>=100", 100, True),
        ("branch<-0.5", -1, True),
        ("branch<=1e3", 1000.5, False),
        ("branch=main", ["dev", "main"], True),
        ("branch=main", ["dev"], False),
    ],
)
def test_a_condition_holds_for_what_it_describes(condition: str, value: Any, holds: bool) -> None:
    assert effect({"branch": value}, deny=[f"git__push({condition})"]) == ("deny" if holds else None)


def test_all_conditions_of_a_rule_must_hold() -> None:
    rule = ["git__push(force=true, branch=main)"]

    assert effect({"force": True, "branch": "main"}, deny=rule) == "deny"
    assert effect({"force": False, "branch": "main"}, deny=rule) is None


def test_a_condition_reaches_into_objects() -> None:
    assert effect({"to": {"host": "example.com"}}, deny=["git__push(to.host=*.com)"]) == "deny"


@pytest.mark.parametrize("arguments", [{}, {"branch": {"name": "main"}}, {"branch": [["main"]]}, {"branch": []}])
def test_a_deny_that_cannot_be_ruled_out_asks(arguments: dict[str, Any]) -> None:
    decision = Rules([parse_rule("deny", "git__push(branch=main)")]).decide(PUSH, arguments)

    note = "deny git__push(branch=main) (config): the arguments do not show whether it holds"
    assert decision == Decision(effect="ask", rule=note)


def test_a_number_rule_over_a_text_asks() -> None:
    assert effect({"amount": "101"}, deny=["git__push(amount>100)"]) == "ask"


def test_an_ask_that_cannot_be_ruled_out_asks() -> None:
    assert effect({}, ask=["git__push(branch=main)"], allow=["git__push"]) == "ask"


def test_an_allow_that_cannot_be_shown_does_not_allow() -> None:
    assert effect({}, allow=["git__push(branch=dev)"]) is None


def test_an_allow_needs_every_item_of_a_list_and_a_deny_one() -> None:
    mixed = {"branch": ["dev", "main"]}

    assert effect(mixed, allow=["git__push(branch=dev)"]) is None
    assert effect(mixed, deny=["git__push(branch=main)"]) == "deny"


@pytest.mark.parametrize("path", ["/tmp/../etc/passwd", "/tmp//../etc/passwd", "/tmp/./../etc/passwd", "//etc/passwd"])
def test_a_path_with_detours_is_both_what_it_says_and_where_it_leads(path: str) -> None:
    assert effect({"path": path}, deny=["git__push(path=/etc/*)"]) == "deny"
    assert effect({"path": path}, allow=["git__push(path=/tmp/*)"]) is None


def test_a_glob_with_many_stars_is_matched_in_time_linear_in_the_text() -> None:
    rules = Rules([parse_rule("deny", "git__push(text=*a*a*a*a*a*a*a*a*b)")])
    started = time.process_time()

    assert rules.decide(PUSH, {"text": "a" * 300_000}) is None
    assert time.process_time() - started < 2


ORDERS = {"orders": [{"to": "a", "n": 5}, {"to": "b", "n": 500}]}


@pytest.mark.parametrize(
    ("condition", "arguments", "denied", "allowed"),
    [
        ("orders.n>100", ORDERS, "deny", None),
        ("orders.n>1", ORDERS, "deny", "allow"),
        ("orders.to=b", ORDERS, "deny", None),
        ("orders.to!=c", ORDERS, "deny", "allow"),
        ("orders.to!=a", ORDERS, "deny", None),
        ("orders.n>1000", ORDERS, None, None),
        ("orders.lines.n>1", {"orders": [{"lines": [{"n": 2}, {"n": 3}]}]}, "deny", "allow"),
        ("orders.n>100", {"orders": [{"n": 5}, {}]}, "ask", None),
        ("orders.n>100", {"orders": []}, "ask", None),
        ("n>100", {"n": "500"}, "ask", None),
        ("n>100", {"n": True}, "ask", None),
        ("n>100", {"n": 10**400}, "deny", "allow"),
    ],
)
def test_a_condition_reaches_into_every_object_of_a_list(
    condition: str, arguments: dict[str, Any], denied: str | None, allowed: str | None
) -> None:
    assert effect(arguments, deny=[f"git__push({condition})"]) == denied
    assert effect(arguments, allow=[f"git__push({condition})"]) == allowed


# Order


def test_deny_comes_before_ask_and_ask_before_allow_however_special_the_rule() -> None:
    main = {"branch": "main"}
    special = ["git__push(branch=main)"]

    assert effect(main, deny=["*"], ask=["git__*"], allow=special) == "deny"
    assert effect(main, ask=["git__*"], allow=special) == "ask"
    assert effect(main, allow=special) == "allow"


def test_a_sure_deny_comes_before_one_that_cannot_be_told() -> None:
    assert effect({}, deny=["git__push(branch=main)", "git__push"]) == "deny"


def test_the_decision_names_the_rule_and_its_layer() -> None:
    rules = Rules([*parse_rules({"allow": ["git__push"]}), parse_rule("deny", "git__*", layer="profile")])

    assert rules.decide(PUSH, {}) == Decision(effect="deny", rule="deny git__* (profile)")


def test_no_rule_is_no_decision() -> None:
    assert Rules().decide(PUSH, {}) is None


RULES = ["*", "git__push", "git__push(branch=main)", "git__push(n>1)", "git__push(branch!=dev, n<5)", "fs__*"]
BRANCHES: list[Any] = ["main", "dev", ["main", "dev"], {}]
NUMBERS: list[Any] = [0, 3, 9, "3"]
arguments_of = st.tuples(st.none() | st.sampled_from(BRANCHES), st.none() | st.sampled_from(NUMBERS)).map(
    lambda pair: {name: value for name, value in zip(("branch", "n"), pair, strict=True) if value is not None}
)
STRENGTH = {"deny": 0, "ask": 1, None: 2, "allow": 3}


@pytest.mark.slow
@given(
    deny=st.lists(st.sampled_from(RULES), max_size=2),
    ask=st.lists(st.sampled_from(RULES), max_size=2),
    allow=st.lists(st.sampled_from(RULES), max_size=2),
    more=st.sampled_from(RULES),
    arguments=arguments_of,
)
def test_another_deny_and_a_missing_allow_never_permit_more(
    deny: list[str], ask: list[str], allow: list[str], more: str, arguments: dict[str, Any]
) -> None:
    before = STRENGTH[effect(arguments, deny=deny, ask=ask, allow=allow)]

    assert STRENGTH[effect(arguments, deny=[*deny, more], ask=ask, allow=allow)] <= before
    assert STRENGTH[effect(arguments, deny=deny, ask=ask, allow=allow[1:])] <= before


# Broken rules


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the tool name is missing; * matches every tool"),
        ("(a=1)", "the tool name is missing; * matches every tool"),
        ("git__push(branch=main", "the bracket is not closed"),
        ("git push", "' ' cannot be part of a tool's name; conditions go in brackets: Tool(argument=value)"),
        (
            "git__push branch=main",
            "' ' cannot be part of a tool's name; conditions go in brackets: Tool(argument=value)",
        ),
        ("kind:wirte", "the kinds are read, write, destructive, not 'wirte'; did you mean 'write'?"),
        ("tool:x", "'tool:x' has a colon; rules by kind are written kind:read, kind:write or kind:destructive"),
        ("git__push(main)", "'main' is not a condition; write git__push(argument=glob) or git__push(argument>number)"),
        ("git__push(branch=)", "'branch=' has no value; an empty text is written ''"),
        ("git__push(n>many)", "'many' is not a number to compare with"),
        ("git__push(n>nan)", "'nan' is not a number to compare with"),
        ("git__push(branch='main)", "the quote ' is not closed"),
        ("git__push(branch=main, dev)", "'dev' is not a condition; write argument=glob or argument>number"),
        ("Bash(:*)", "it names no command; Bash without brackets means every command"),
        ("Read(../x)", "a pattern with .. is not supported; write the path out, with // in front"),
        ("Read(~/x)", "~ cannot be resolved here; write the whole path, with // in front"),
        ("WebFetch(example.com)", "'example.com' is not a domain; write WebFetch(domain:example.com)"),
    ],
)
def test_a_broken_rule_is_an_error_that_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_rules({"deny": ["fs__*", text]})

    assert str(error.value) == f"deny: rule {text!r}: {reason}"


def test_a_broken_rule_of_a_file_names_the_file() -> None:
    with pytest.raises(ConfigError, match=r"^team\.yaml: ask: rule 'kind:x'"):
        parse_rule("ask", "kind:x", layer="team.yaml")
