"""What rules decide about shell commands: the table that users know, our own rows, and commands in disguise."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.permission import Effect
from toolcrib.core.session import SessionState
from toolcrib.core.tool import Tool
from toolcrib.policy.decision import Policy
from toolcrib.policy.rule_layers import RuleLayers
from toolcrib.policy.rules import Rules, parse_rules
from toolcrib.policy.shell.grammar import MAX_TEXT_LENGTH, read_script

HERE = Path(__file__).parent
SHELL = Tool(name="run_command", local_name="run_command", source="own", category="shell")
DISGUISES = [text.strip("\n") for text in (HERE / "disguises.txt").read_text(encoding="utf-8").split("\n%%\n")]
NO_RM = Rules(parse_rules({"allow": ["Bash"], "deny": ["Bash(rm:*)"]}))


def effect(rules: Mapping[Effect, list[str]], arguments: Mapping[str, Any], tool: Tool = SHELL, **session: Any) -> str:
    state = SessionState(key="k", **session)
    return Policy(RuleLayers(parse_rules(rules))).decide(tool, arguments, state).effect


def rows() -> Iterator[tuple[Mapping[Effect, list[str]], str, str]]:
    for table in yaml.load((HERE / "golden.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader):
        for command, expected in table["decisions"].items():
            yield table["rules"], command, expected


@pytest.mark.parametrize(("rules", "command", "expected"), list(rows()))
def test_a_command_is_decided_as_the_table_says(rules: Mapping[Effect, list[str]], command: str, expected: str) -> None:
    assert effect(rules, {"command": command}) == expected


def test_no_disguise_makes_a_denied_command_run_unasked_and_most_are_seen_through() -> None:
    decisions = {text: NO_RM.decide(SHELL, {"command": text}) for text in DISGUISES}
    effects = {text: decision.effect if decision else "none" for text, decision in decisions.items()}

    assert [text for text, effect in effects.items() if effect not in ("deny", "ask")] == []
    assert len(DISGUISES) >= 500
    assert list(effects.values()).count("deny") >= 270


@pytest.mark.parametrize(
    "program", ["multitime", "acme-run", "./wrap", "/opt/x/bin/launch", "poetry run", "conda run -n b", "corp exec --"]
)
@pytest.mark.parametrize("text", ["rm -f x", "/bin/rm x", "-c 'rm -f x'", "--exec='rm -f x'", "-x rm", "'a; rm x'"])
def test_a_program_that_is_not_known_starts_a_denied_one_only_after_a_question(program: str, text: str) -> None:
    assert effect({"allow": ["Bash"], "deny": ["Bash(rm:*)"]}, {"command": f"{program} {text}"}) == "ask"


ORDINARY = """
acme-run --rm
acme-run rmdir
acme-run src/rm/a.py
acme-run --format=arm
acme-run 'the alarm'
echo rm
grep -r rm .
git commit -m 'rm old files'
touch rm
chmod +x rm
which rm
pytest -q
npm run build
mkdir -p build/rm
A=alarm make
cargo build --release
man rm
acme-run git status
acme-run src/git push.py
curl -o rm u
""".strip().splitlines()
"""Commands with a denied word in a place where nothing starts it."""


@pytest.mark.parametrize("command", ORDINARY)
def test_a_word_that_is_no_command_asks_nothing(command: str) -> None:
    assert effect({"allow": ["Bash"], "deny": ["Bash(rm:*)", "Bash(git push:*)"]}, {"command": command}) == "allow"


def test_a_program_that_is_not_known_and_a_denied_sub_command_ask() -> None:
    for text in ("acme-run git push", "acme-run 'git push'", "acme-run git -C . push", "acme-run -x 'a; git push -f'"):
        assert effect({"allow": ["Bash"], "deny": ["Bash(git push:*)"]}, {"command": text}) == "ask"


WRAPPERS = (
    "{}",
    "sudo {}",
    "env A=1 {}",
    "nice -n 3 {}",
    "bash -c '{}'",
    "echo $({})",
    "({})",
    "x; {}",
    "! {}",
    "{} &",
)


@pytest.mark.slow
@given(
    wrappers=st.lists(st.sampled_from(WRAPPERS), max_size=4),
    allow=st.lists(st.sampled_from(["Bash", "*", "Bash(*)", "Bash(bash:*)", "Bash(sudo *)", "kind:destructive"])),
)
def test_no_set_of_rules_allows_what_one_of_them_denies(wrappers: list[str], allow: list[str]) -> None:
    text = "rm -f x"
    for wrapper in wrappers:
        text = wrapper.format(text.replace("'", "'\\''") if "'" in wrapper else text)

    assert effect({"deny": ["Bash(rm:*)"], "allow": allow}, {"command": text}, mode="autonomous") != "allow"


COMMANDS = [
    "ls",
    "rm x",
    "git push",
    "touch x",
    "git status; rm x",
    "$X y",
    "timeout 5 touch x > f",
    "bash -c 'git push'",
]
RULES = ["Bash", "Bash(rm:*)", "Bash(git *)", "Bash(touch *)", "Bash(ls)", "Bash(* x)", "run_command", "kind:read"]
STRENGTH = {"deny": 0, "ask": 1, "allow": 2}
some_rules = st.lists(st.sampled_from(RULES), max_size=3)


@pytest.mark.slow
@given(
    deny=some_rules,
    ask=some_rules,
    allow=some_rules,
    more=st.sampled_from(RULES),
    command=st.sampled_from(COMMANDS),
    mode=st.sampled_from(["cautious", "autonomous", "manual"]),
)
def test_more_denies_and_fewer_allows_never_permit_more_and_their_order_is_nothing(
    deny: list[str], ask: list[str], allow: list[str], more: str, command: str, mode: str
) -> None:
    def decided(deny: list[str], ask: list[str], allow: list[str]) -> str:
        return effect({"deny": deny, "ask": ask, "allow": allow}, {"command": command}, mode=mode)

    before = decided(deny, ask, allow)
    assert STRENGTH[decided([*deny, more], ask, allow)] <= STRENGTH[before]
    assert mode == "autonomous" or STRENGTH[decided(deny, ask, allow[1:])] <= STRENGTH[before]
    assert decided(deny[::-1], ask[::-1], allow[::-1]) == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"command": ["rm", "-f", "x"]}, "deny"),
        ({"command": ["sudo", "rm", "x"]}, "deny"),
        ({"argv": ["bash", "-c", "rm x"]}, "deny"),
        ({"command": "rm", "args": ["x"]}, "deny"),
        ({"command": ["rm x; ls"]}, "deny"),
        ({"commands": ["ls", "rm x"]}, "deny"),
        ({"script": "set -e\nrm x\n"}, "deny"),
        ({"command": ["echo", "rm x"]}, "allow"),
        ({"command": ["echo", "$(rm x)"]}, "allow"),
        ({"command": "ls", "env": {"PATH": "."}}, "ask"),
        ({"command": "ls", "env": {}}, "allow"),
        ({"command": {"a": 1}}, "ask"),
        ({"command": []}, "ask"),
        ({"other": "rm x"}, "deny"),
        ({"other": "ls"}, "ask"),
        ({}, "ask"),
    ],
)
def test_a_command_is_found_in_whichever_argument_it_stands(arguments: dict[str, Any], expected: str) -> None:
    decision = NO_RM.decide(SHELL, arguments)

    assert decision is not None
    assert decision.effect == expected


@pytest.mark.parametrize(
    ("tool", "means"),
    [
        (SHELL, True),
        (Tool(name="t", local_name="t", source="s", tags=("Shell",)), True),
        (Tool(name="x__Bash", local_name="Bash", source="x"), True),
        (Tool(name="t", local_name="t", source="s", category="files"), False),
    ],
)
def test_bash_means_every_tool_that_runs_shell_commands(tool: Tool, means: bool) -> None:
    assert (effect({"deny": ["Bash(rm:*)"]}, {"command": "rm x"}, tool) == "deny") is means


def test_a_tool_of_a_server_is_denied_as_a_shell_and_not_allowed_as_one() -> None:
    theirs = Tool(name="x__Bash", local_name="Bash", source="x", origin="mcp")

    assert effect({"deny": ["Bash(touch *)"]}, {"command": "touch x"}, theirs) == "deny"
    assert effect({"allow": ["Bash(touch *)"]}, {"command": "touch x"}, theirs) == "ask"
    assert effect({"allow": ["mcp__x__Bash"]}, {"command": "touch x"}, theirs) == "allow"
    assert effect({}, {"command": "ls"}, theirs) == "ask"


def test_a_command_that_only_reads_is_a_read_to_every_mode() -> None:
    assert [effect({}, {"command": "ls"}, mode=mode) for mode in ("cautious", "manual")] == ["allow", "ask"]
    assert effect({"ask": ["Bash"]}, {"command": "ls"}) == "ask"


@pytest.mark.parametrize(
    ("command", "reads"),
    [
        ("uniq a", True),
        ("cat a | uniq -c -", True),
        ("uniq - b", False),
        ("uniq -- -a b", False),
        ("date -u -d yesterday +%F", True),
        ("date 010100002026", False),
        ("date -d now 010100002026", False),
        ("echo `date +%s`", True),
        (r"echo `echo \`touch a\``", False),
        (r'cat "`echo \`touch a\``"', False),
    ],
)
def test_what_writes_in_a_way_that_few_know_is_no_read(command: str, reads: bool) -> None:
    assert effect({}, {"command": command}) == ("allow" if reads else "ask")


def test_git_in_another_folder_is_no_read_for_its_configuration_may_run_something() -> None:
    assert effect({}, {"command": "git status", "cwd": "."}) == "allow"
    assert effect({}, {"command": "git status", "cwd": "downloads/theirs"}) == "ask"
    assert effect({}, {"command": "ls", "cwd": "downloads/theirs"}) == "allow"


def test_what_cannot_be_taken_back_is_found_in_an_argument_of_any_name() -> None:
    assert effect({"allow": ["run_command"]}, {"line": "rm -rf /"}, mode="autonomous") == "ask"
    assert effect({}, {"line": "ls"}) == "ask"


def test_what_cannot_be_taken_back_is_found_behind_backslashes_between_backquotes() -> None:
    assert effect({"allow": ["Bash"]}, {"command": r"echo `echo \`rm -rf /\``"}, mode="autonomous") == "ask"


def test_the_decision_names_every_rule_that_it_took() -> None:
    rules = Rules(parse_rules({"allow": ["Bash(touch *)", "Bash(mkdir *)"]}))
    decision = rules.decide(SHELL, {"command": "mkdir a && touch b"})

    assert decision is not None
    assert decision.rule == "allow Bash(touch *) (config) and allow Bash(mkdir *) (config)"


HOSTILE = {
    "many pipes": "a|" * 16_000,
    "many arrays": "a=(" * 10_000,
    "many tests": "[[ " * 10_000,
    "deep substitutions": '"$(' * 10_000,
    "braces": "{a,b}" * 6_000,
    "open braces": "{a," * 10_000,
    "wrappers": "sudo env " * 3_500,
    "wrappers of any rest": "docker run (" + "python3 -c -v docker run " * 300,
    "texts": "ssh " + "'a b' " * 5_000,
    "here-documents": "cat <<A\n" * 4_000,
    "quotes": "'" * 31_999,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_text_made_to_keep_the_reader_busy_asks_soon(text: str) -> None:
    started = time.thread_time()
    decision = NO_RM.decide(SHELL, {"command": text})

    assert time.thread_time() - started < 2
    assert decision is not None
    assert decision.effect == "ask" or text.startswith(("{a,b}", "sudo"))


def test_a_text_that_is_too_long_is_not_read() -> None:
    assert read_script("x" * (MAX_TEXT_LENGTH + 1)).doubts == ("a command of 32,001 characters",)


@pytest.mark.parametrize("unit", ["git ", "git 'git' ", "a=git ", "bin/", "/bin/git ", "x/", "git=push"])
def test_a_program_that_is_not_known_with_very_many_words_is_decided_on_soon(unit: str) -> None:
    command = f"acme-run {unit * (60_000 // len(unit))}"
    began = time.process_time()
    effect({"allow": ["Bash"], "deny": ["Bash(git push:*)"]}, {"command": command})
    assert time.process_time() - began < 5
