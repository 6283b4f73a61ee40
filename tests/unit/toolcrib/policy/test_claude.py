"""Claude Code's words in rules: files as gitignore writes them, domains, and which tools each word means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolcrib.core.permission import Effect
from toolcrib.core.tool import Annotations, Tool
from toolcrib.policy import path_patterns
from toolcrib.policy.rules import Rules, parse_rules

READS = Annotations(read_only=True, destructive=False)
READ = Tool(name="read_file", local_name="read_file", source="own", tags=("Files",), annotations=READS)
GREP = Tool(name="grep", local_name="grep", source="own", category="search", annotations=READS)
EDIT = Tool(name="edit_file", local_name="edit_file", source="own", traits=("file_writer",))
FETCH = Tool(name="fetch", local_name="fetch", source="own", category="web", annotations=READS)
HOME, WORK = "/u/me", Path("/srv/work")


def effect(tool: Tool, arguments: Mapping[str, Any], cwd: Path = WORK, **rules: list[str]) -> str | None:
    texts: dict[Effect, list[str]] = {"deny": rules.get("deny", []), "ask": rules.get("ask", [])}
    texts["allow"] = rules.get("allow", [])
    decision = Rules(parse_rules(texts, home=HOME)).decide(tool, arguments, cwd)
    return decision.effect if decision else None


@pytest.mark.parametrize(
    ("pattern", "path", "means"),
    [
        ("./src/**", "src/a.py", True),
        ("src/**", "./src/b/c.py", True),
        ("src/**", "/srv/work/src/a", True),
        ("src/**", "src/../etc/a", False),
        ("src/**", "lib/../src/a", True),
        ("src/*", "src/a/b", True),
        ("src/*.py", "src/a/b.py", False),
        ("src", "src/a", True),
        ("src/", "src/a", True),
        (".env", ".env", True),
        (".env", "a/b/.env", True),
        ("./.env", "a/.env", False),
        (".env", ".envrc", False),
        ("*.pem", "a/key.pem", True),
        ("**/secret/**", "a/secret/b", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a[bc]d", "acd", True),
        ("a[!bc]d", "acd", False),
        ("a[+-9]b", "a5b", True),
        ("a[+-9]b", "a/b", False),
        ("//etc/**", "/etc/passwd", True),
        ("//etc/**", "../../etc/passwd", True),
        ("//etc/**", "//etc/passwd", True),
        ("//etc/**", "etc/passwd", False),
        ("//etc", "/srv/etc/passwd", False),
        ("~/notes/**", "/u/me/notes/a", True),
        ("~/notes/**", "notes/a", False),
        ("**", "a/b", True),
        ("**", "/etc/x", False),
    ],
)
def test_a_pattern_means_files_as_gitignore_does(pattern: str, path: str, means: bool) -> None:
    assert effect(READ, {"path": path}, deny=[f"Read({pattern})"]) == ("deny" if means else None)
    assert effect(EDIT, {"file_path": path}, allow=[f"Edit({pattern})"]) == ("allow" if means else None)


@pytest.mark.parametrize("path", ["SECRETS/key", "/SRV/Work/Secrets/KEY", "secrets/key"])
def test_where_a_disk_does_not_tell_letters_apart_a_pattern_means_each_spelling(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert effect(READ, {"path": "SECRETS/key"}, deny=["Read(./secrets/**)"]) is None
    monkeypatch.setattr(path_patterns, "_FOLDS_CASE", True)

    assert effect(READ, {"path": path}, deny=["Read(./secrets/**)"]) == "deny"
    assert effect(READ, {"path": path}, deny=["Read(//srv/WORK/Secrets/*)"]) == "deny"


def test_a_long_path_is_compared_at_once_with_any_pattern_and_one_that_no_system_opens_asks() -> None:
    deny = [f"Read({'**/a/**/b/' * 5}**/z)"]

    assert [effect(READ, {"path": "a/b/" * count}, deny=deny) for count in (1_000, 10_000)] == [None, "ask"]
    assert effect(READ, {"path": "\ud800"}, deny=deny) == "ask"


@pytest.mark.parametrize(
    ("arguments", "denied", "allowed"),
    [
        ({"paths": ["src/a", "lib/b"]}, "deny", None),
        ({"paths": ["src/a", "src/b"]}, "deny", "allow"),
        ({"edits": [{"path": "src/a"}, {"path": "x"}]}, "deny", None),
        ({"source": "x", "destination": "src/a"}, "deny", None),
        ({"text": "src/a"}, "ask", None),
        ({"path": "~/src/a"}, "ask", None),
        ({"path": "project:project_1/src/a"}, "ask", None),
        ({}, "ask", None),
    ],
)
def test_every_path_of_a_call_is_looked_at(arguments: dict[str, Any], denied: str, allowed: str | None) -> None:
    assert effect(EDIT, arguments, deny=["Edit(src/**)"]) == denied
    assert effect(EDIT, arguments, allow=["Edit(src/**)"]) == allowed


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"path": "."}, "ask"),
        ({}, "ask"),
        ({"path": "a"}, "ask"),
        ({"path": "a/secret"}, "deny"),
        ({"path": "b"}, None),
    ],
)
def test_a_search_above_what_is_denied_asks(arguments: dict[str, Any], expected: str | None) -> None:
    assert effect(GREP, arguments, deny=["Read(./a/secret/**)"]) == expected


def test_a_search_of_a_file_beside_what_is_denied_does_not_ask() -> None:
    assert effect(GREP, {"path": "a.txt"}, deny=["Read(./secret/**)"]) is None
    assert effect(GREP, {"path": "."}, deny=["Read(./secret/**)"]) == "ask"
    assert effect(GREP, {"path": "sub"}, deny=["Read(*.pem)"]) == "ask"


def test_a_file_is_denied_by_whichever_of_its_paths_and_allowed_where_all_are_meant(tmp_path: Path) -> None:
    work, alias = tmp_path / "work", tmp_path / "alias"
    (work / "secret").mkdir(parents=True)
    (work / "src").mkdir()
    alias.symlink_to(work)
    (work / "src" / "link").symlink_to(work / "secret")

    def decided(path: str, cwd: Path, **rules: list[str]) -> str | None:
        return effect(EDIT, {"path": path}, cwd, **rules)

    for written in ("secret/a", f"{work}/secret/a", f"{alias}/secret/a", "src/link/a"):
        for rule in ("./secret/**", f"/{work}/secret/**", f"/{alias}/secret/**"):
            assert decided(written, work, deny=[f"Edit({rule})"]) == "deny", (written, rule)
    assert decided("src/a", work, allow=["Edit(./src/**)"]) == "allow"
    assert decided("src/a", alias, allow=["Edit(./src/**)"]) == "allow"
    assert decided(f"{alias}/src/a", work, allow=[f"Edit(/{alias}/src/**)"]) == "allow"
    assert decided("src/link/a", work, allow=["Edit(./src/**)"]) is None


def test_a_folder_that_holds_what_is_denied_asks_whoever_takes_it_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "a" / "secret").mkdir(parents=True)
    (tmp_path / "b.txt").write_text("b")
    deny = ["Edit(./a/secret/**)", "Edit(*.pem)"]

    assert effect(EDIT, {"source": "a", "destination": "c"}, tmp_path, deny=deny) == "ask"
    assert effect(EDIT, {"source": "b.txt", "destination": "c.txt"}, tmp_path, deny=deny) is None


def test_what_must_not_be_read_is_not_copied_or_changed_either() -> None:
    assert effect(EDIT, {"source": "secret/a", "destination": "b"}, deny=["Read(./secret/**)"]) == "deny"
    assert effect(EDIT, {"source": "secret/a", "destination": "b"}, allow=["Read(./secret/**)", "Read(b)"]) is None


@pytest.mark.parametrize(
    ("word", "means"),
    [
        ("Read", {READ, GREP}),
        ("Grep", {GREP}),
        ("Glob", {GREP}),
        ("LS", {READ, GREP}),
        ("Edit", {EDIT}),
        ("Write", {EDIT}),
        ("MultiEdit", {EDIT}),
        ("WebFetch", {FETCH}),
        ("Task", set[Tool]()),
    ],
)
def test_a_word_means_our_tools_of_that_kind(word: str, means: set[Tool]) -> None:
    assert {tool for tool in (READ, GREP, EDIT, FETCH) if effect(tool, {}, deny=[word])} == means


@pytest.mark.parametrize("origin", ["yaml", "rest", "mcp"])
def test_an_alias_that_a_definition_brings_gains_no_permission_and_loses_none(origin: str) -> None:
    theirs = Tool(name="x__y", local_name="y", source="x", origin=origin, aliases=("save_note", "mcp__github__get"))

    for name in ("save_note", "mcp__github__get", "mcp__save_note", "save_*", "Read"):
        assert effect(theirs, {}, allow=[name]) is None
    assert effect(theirs, {}, deny=["save_note"]) == effect(theirs, {}, deny=["mcp__save_*"]) == "deny"
    assert effect(replace(theirs, origin="python"), {}, allow=["save_note"]) == "allow"


def test_a_server_whose_name_begins_as_rules_of_claude_code_gains_no_permission_of_another() -> None:
    theirs = Tool(name="mcp__github__get", local_name="get", source="mcp__github", origin="mcp")

    assert effect(theirs, {}, allow=["mcp__github__get"]) is None
    assert effect(theirs, {}, allow=["mcp__mcp__github__get"]) == "allow"
    assert effect(theirs, {}, deny=["mcp__github__get"]) == "deny"


def test_what_a_server_calls_its_tool_denies_and_allows_nothing() -> None:
    theirs = Tool(name="x__Read", local_name="Read", source="x", origin="mcp", category="files", annotations=READS)

    assert effect(theirs, {"path": "a"}, deny=["Read(a)"]) == "deny"
    assert effect(theirs, {"path": "a"}, allow=["Read(a)"]) is None


@pytest.mark.parametrize(
    ("url", "denied", "allowed"),
    [
        ("https://example.com/a", "deny", "allow"),
        ("https://EXAMPLE.com.:8080/a", "deny", "allow"),
        ("https://a.example.com", None, None),
        ("https://example.com@evil.test/", None, None),
        ("https://evil.test/?x=example.com", None, None),
        ("https://evil.test\\@example.com", "ask", None),
        ("example.com/a", "ask", None),
        ("https://[x", "ask", None),
        ("https://example\u3002com/a", "ask", None),
        ("https://ex%61mple.com/a", "ask", None),
        ("https://\uff45xample.com/a", "ask", None),
        ("http://2130706433/", "ask", None),
        ("http://0x7f.1/", "ask", None),
        ("http://127.0.0.1/", None, None),
        ("http://[::1]:80/", None, None),
    ],
)
def test_a_domain_means_the_host_of_a_link(url: str, denied: str | None, allowed: str | None) -> None:
    assert effect(FETCH, {"url": url}, deny=["WebFetch(domain:example.com)"]) == denied
    assert effect(FETCH, {"url": url}, allow=["WebFetch(domain:example.com)"]) == allowed


def test_a_domain_with_a_star_means_what_is_below_it() -> None:
    assert effect(FETCH, {"url": "https://a.example.com"}, allow=["WebFetch(domain:*.example.com)"]) == "allow"
    assert effect(FETCH, {"url": "https://example.com"}, allow=["WebFetch(domain:*.example.com)"]) is None


def test_brackets_of_bash_may_be_conditions_on_arguments() -> None:
    shell = Tool(name="sh", local_name="sh", source="own", category="shell")

    assert effect(shell, {"command": "ls", "timeout": 900}, deny=["Bash(timeout>600)"]) == "deny"
    assert effect(shell, {"command": "FOO=1 ls"}, deny=["Bash(FOO=1 ls)"]) is None


def test_a_path_is_seen_at_any_depth_of_the_arguments_beside_a_harmless_one() -> None:
    edits: Any = {"path": "src/secret.py"}
    for _ in range(20):
        edits = {"edits": [edits]}

    assert effect(EDIT, {"path": "readme.md", **edits}, deny=["Edit(./src/**)"]) == "deny"
