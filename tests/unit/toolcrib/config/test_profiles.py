"""What users say of profiles, in files and in the environment, and which of it wins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toolcrib.config import Directories, Settings, load
from toolcrib.config.trust import Trust
from toolcrib.core.events import Problem
from toolcrib.crib import Toolcrib
from toolcrib.disclosure.base import Profile
from toolcrib.errors import ConfigError


class Home:
    """A user with a home and a project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.environ = {"HOME": str(folder)}

    def has(self, name: str, content: Mapping[str, Any] | str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def trusts(self, path: Path) -> None:
        Trust(Directories.of(self.environ)).confirm([(path, path.read_bytes())])

    def loads(self, *files: Path, profile: str | None = None, **variables: str) -> Settings:
        return load(files, {"profile": profile}, {**self.environ, **variables}, cwd=self.project)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def profile(settings: Settings, name: str = "") -> Profile:
    return Toolcrib(settings, memory=True).session(profile=name or settings.disclosure.profile).visible.profile


def said(settings: Settings) -> dict[str, Mapping[str, Any]]:
    return {given.name: given.values for given in settings.disclosure.profiles}


# Where profiles are written


def test_a_profile_of_our_file_changes_what_the_built_in_one_says_and_nothing_else(home: Home) -> None:
    file = home.has("c.yaml", {"profile": "tiered", "profiles": {"tiered": {"core": ["a"], "verbs": {"load": "get"}}}})
    built = profile(home.loads(file))
    assert (built.core, built.verbs["load"], built.verbs["browse"]) == (("a",), "get", "browse_tools")
    assert built.envelope == "error"


def test_a_profile_may_extend_another_one_of_the_user(home: Home) -> None:
    mine = {"extends": "introspection", "parallel": 3, "core": ["a"]}
    file = home.has("c.yaml", {"profiles": {"mine": mine, "yours": {"extends": "mine", "core": ["b"]}}})
    built = profile(home.loads(file), "yours")
    assert (built.name, built.strategy, built.parallel, built.core) == ("yours", "introspection", 3, ("b",))


def test_profiles_that_extend_each_other_are_refused(home: Home) -> None:
    file = home.has("c.yaml", {"profiles": {"a": {"extends": "b"}, "b": {"extends": "a"}}})
    with pytest.raises(ConfigError, match="extends: unknown profile"):
        profile(home.loads(file), "a")


def test_files_in_the_users_folder_are_profiles_named_by_their_name_or_their_file(home: Home) -> None:
    home.has(".config/toolcrib/profiles/one.yaml", {"extends": "flat"})
    home.has(".config/toolcrib/profiles/two.yaml", {"extends": "flat", "name": "second"})
    home.has(".config/toolcrib/profiles/notes.txt", "no profile")
    assert said(home.loads()) == {"one": {"extends": "flat"}, "second": {"extends": "flat", "name": "second"}}


def test_a_projects_profile_counts_once_it_is_confirmed_and_wins_over_the_users(home: Home) -> None:
    home.has(".config/toolcrib/profiles/p.yaml", {"extends": "flat", "parallel": 1, "description": "own"})
    path = home.has("project/.toolcrib/profiles/p.yaml", {"extends": "flat", "parallel": 2})
    before = home.loads()
    home.trusts(path)
    after = home.loads()
    assert [problem.code for problem in before.problems] == ["untrusted"]
    assert (said(before)["p"]["parallel"], after.problems) == (1, ())
    assert said(after)["p"] == {"extends": "flat", "parallel": 2, "description": "own"}


def test_our_file_wins_over_the_folders_key_by_key(home: Home) -> None:
    home.has(".config/toolcrib/profiles/p.yaml", {"extends": "flat", "parallel": 1, "description": "in the folder"})
    home.has(".config/toolcrib/config.yaml", {"profiles": {"p": {"parallel": 4}}})
    assert said(home.loads()) == {"p": {"extends": "flat", "parallel": 4, "description": "in the folder"}}


def test_a_named_file_is_all_that_is_read(home: Home) -> None:
    home.has(".config/toolcrib/profiles/p.yaml", {"extends": "flat"})
    assert said(home.loads(home.has("c.yaml", {}))) == {}


def test_a_broken_file_hides_no_other_profile(home: Home) -> None:
    broken = home.has(".config/toolcrib/profiles/a.yaml", "{extends: [")
    home.has(".config/toolcrib/profiles/b.yaml", {"extends": "flat"})
    settings = home.loads()
    (problem,) = settings.problems
    assert (problem.source, problem.code, list(said(settings))) == (str(broken), "bad_config", ["b"])


# A path in place of a name


def test_a_path_stands_for_the_profile_in_the_file_counted_from_whoever_says_it(home: Home) -> None:
    home.has("project/mine.yaml", {"extends": "tiered", "core": ["a"]})
    home.has("conf/theirs.yaml", {"extends": "tiered", "core": ["b"], "name": "their-own"})
    file = home.has("conf/c.yaml", {"profile": "./theirs.yaml"})
    assert profile(home.loads(file)).core == ("b",)
    assert home.loads(file).disclosure.profile == "their-own"
    assert profile(home.loads(file, profile="mine.yaml")).core == ("a",)


def test_a_path_that_leads_nowhere_is_refused(home: Home) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        home.loads(profile="./nowhere.yaml")


# What is wrong with one


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"extends": "tierd"}, "extends: unknown profile 'tierd'; did you mean tiered"),
        ({"strategy": "tierd"}, "strategy: unknown strategy 'tierd'; did you mean tiered?"),
        ({"core": []}, "strategy: a profile needs a strategy, or another one that it `extends`"),
        ({"extends": "tiered", "verbs": {"brows": "x"}}, "verbs.brows: unknown verb 'brows'; did you mean browse"),
        (
            {"extends": "tiered", "verbs": {"browse": "load_tools"}},
            "verbs.load: 'load_tools' is the name of browse already",
        ),
        ({"extends": "tiered", "core": ["a", 1]}, "core.1: takes a text, not 1"),
        ({"extends": "tiered", "categories": {"git": 1}}, "categories.git: takes a text, not 1"),
        (
            {"extends": "tiered", "options": {"fixed_list": ["cal"]}},
            "options.fixed_list.0: unknown verb 'cal'; did you mean call",
        ),
        ({"extends": "tiered", "envelope": "eror"}, "envelope: unknown envelope 'eror'; did you mean error?"),
    ],
)
def test_a_wrong_profile_is_a_problem_with_file_and_line_and_an_error_once_it_is_wanted(
    home: Home, wrong: Mapping[str, Any], told: str
) -> None:
    file = home.has("c.yaml", f"profiles:\n  good: {{extends: flat}}\n  wrong: {json.dumps(wrong)}\n")
    crib = Toolcrib(home.loads(file), memory=True)
    (problem,) = crib.problems
    assert problem == Problem(source="wrong", code="bad_profile", message=problem.message)
    assert problem.message.startswith(f"{file}:3: {told}")
    assert crib.session(profile="good").visible.profile.strategy == "flat"
    assert "wrong" not in crib.profiles
    with pytest.raises(ConfigError, match=r"c\.yaml:3"):
        crib.session(profile="wrong")


WRONG: dict[str, Any] = {
    "extends": "tiered",
    "coer": [],
    "envelope": "eror",
    "fence": 3,
    "results": {"stlye": "x"},
    "loops": {"same": 1},
}
INSIDE: dict[str, Any] = {
    "extends": "tiered",
    "core": ["a", 1],
    "verbs": {"brows": "x", "load": "not a name"},
    "names": {"a": 3, "b": {"tool": "t", "args": 3}, "c": {"tool": "t", "instead": [{"tool": "u"}]}},
    "rules": {"deny": ["x("]},
    "mcp_names": "{x}",
    "options": {"wrong": 1, "fixed_list": ["cal"]},
}


@pytest.mark.parametrize(
    ("wrong", "keys"),
    [
        (WRONG, ["coer", "envelope", "fence", "results", "loops"]),
        (
            INSIDE,
            [
                "core.1",
                "verbs.load",
                "verbs.brows",
                "names.a",
                "names.b.args",
                "names.c.instead.0",
                "rules",
                "mcp_names",
                "options.wrong",
                "options.fixed_list.0",
            ],
        ),
    ],
    ids=["keys", "inside"],
)
def test_a_wrong_profile_has_a_problem_for_each_of_its_errors_in_their_order(
    home: Home, wrong: Mapping[str, Any], keys: list[str]
) -> None:
    file = home.has("c.yaml", f"profiles:\n  wrong: {json.dumps(wrong)}\n")

    problems = Toolcrib(home.loads(file), memory=True).problems

    assert [one.message.removeprefix(f"{file}:2: ").partition(":")[0] for one in problems] == keys


def test_a_profile_that_extends_a_wrong_one_is_a_problem_too(home: Home) -> None:
    profiles: dict[str, Any] = {"base": {"extends": "tiered", "coer": []}, "mine": {"extends": "base"}}
    file = home.has("c.yaml", {"profiles": profiles})

    problems = Toolcrib(home.loads(file), memory=True).problems

    assert [(one.source, "coer" in one.message) for one in problems] == [("base", True), ("mine", True)]


def test_the_profile_of_the_settings_must_be_one(home: Home) -> None:
    with pytest.raises(ConfigError, match="unknown profile 'mien'; did you mean mine"):
        Toolcrib(home.loads(home.has("c.yaml", {"profile": "mien", "profiles": {"mine": {"extends": "flat"}}})))


# The variables of the seed systems


@pytest.mark.parametrize("text", ["false", "0", "off", "No"])
def test_deferred_tools_off_shows_all_of_introspection_at_once(home: Home, text: str) -> None:
    assert not profile(home.loads(JAATO_DEFERRED_TOOLS=text), "introspection").progressive


def test_parallel_tools_off_runs_the_calls_of_introspection_one_by_one(home: Home) -> None:
    assert profile(home.loads(JAATO_PARALLEL_TOOLS="false"), "introspection").parallel == 1
    assert profile(home.loads(JAATO_PARALLEL_TOOLS="true"), "introspection").parallel == 8


def test_the_permission_timeout_is_the_time_that_an_approver_has(home: Home) -> None:
    assert home.loads().approvals.timeout == 120
    assert home.loads(JAATO_PERMISSION_TIMEOUT="7.5").approvals.timeout == 7.5
    file = home.has("c.yaml", {"approvals": {"timeout": 20}})
    assert home.loads(file, JAATO_PERMISSION_TIMEOUT="7.5").approvals.timeout == 20


def test_the_gateway_is_on_for_whoever_names_no_profile(home: Home) -> None:
    file = home.has("c.yaml", {"profile": "tiered"})
    assert home.loads(AGENTIC_CHAT_TOOL_GATEWAY="true").disclosure.profile == "gateway"
    assert home.loads(file, AGENTIC_CHAT_TOOL_GATEWAY="true").disclosure.profile == "tiered"
    assert home.loads(profile="flat", AGENTIC_CHAT_TOOL_GATEWAY="true").disclosure.profile == "flat"


def test_the_gateway_off_is_the_plain_list(home: Home) -> None:
    settings = home.loads(AGENTIC_CHAT_TOOL_GATEWAY="false")
    assert settings.disclosure.profile == "adaptive"
    assert not profile(settings, "gateway").progressive
    assert profile(home.loads(), "gateway").progressive


def test_our_own_settings_win_over_the_variables(home: Home) -> None:
    file = home.has("c.yaml", {"profiles": {"introspection": {"progressive": True}}})
    built = profile(home.loads(file, JAATO_DEFERRED_TOOLS="false", JAATO_PARALLEL_TOOLS="false"), "introspection")
    assert (built.progressive, built.parallel) == (True, 1)


@pytest.mark.parametrize(
    ("name", "text"),
    [("JAATO_DEFERRED_TOOLS", "maybe"), ("JAATO_PERMISSION_TIMEOUT", "-1"), ("JAATO_PERMISSION_TIMEOUT", "x")],
)
def test_a_variable_that_makes_no_sense_is_a_problem_and_not_used(home: Home, name: str, text: str) -> None:
    settings = home.loads(**{name: text})
    (problem,) = settings.problems
    assert (problem.source, problem.message.startswith(f"{name}={text!r} is not used")) == ("environment", True)
    assert (settings.disclosure.profiles, settings.approvals.timeout) == ((), 120.0)


# The key of the local daemon


def test_another_profile_or_approval_timeout_is_another_daemon(home: Home) -> None:
    plain = home.loads().digest()
    changed = home.loads(home.has("c.yaml", {"profiles": {"tiered": {"core": ["a"]}}}))
    other = home.loads(home.has("d.yaml", {"profiles": {"tiered": {"core": ["b"]}}}))
    digests = {changed.digest(), other.digest(), home.loads(JAATO_PERMISSION_TIMEOUT="3").digest(), plain}
    assert len(digests) == 4
