"""What every strategy promises, whatever it shows: it is pure, stable to the byte, keeps to the scope, and is data.

One more strategy is one more name in `contract.seats.PROFILES`, and passes all of this.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from contract.readers import discovered, everything_said
from contract.seats import PROFILES
from contract.workshop import opened
from seeds.rigging import catalog_of, names
from seeds.selection_skills import GROUPS, skills_of
from toolcrib.core.session import SessionState
from toolcrib.disclosure.envelopes import ENVELOPES
from toolcrib.disclosure.meta_tools import RESERVED
from toolcrib.disclosure.profiles import BUILT_IN, STRATEGIES, strategy_of
from toolcrib.errors import ConfigError

per_profile = pytest.mark.parametrize("profile", PROFILES)

PASSING = re.compile(r'call_\w{6,}|(?<="latency_ms":)[\d.]+|\(\d+\.\d s\)|[0-9a-f]{32}')
"""What is another one in every call."""


def test_every_strategy_and_every_built_in_profile_is_in_this_contract() -> None:
    assert sorted(STRATEGIES) == sorted(BUILT_IN) == sorted(PROFILES)


# Pure and stable


def told(state: SessionState) -> dict[str, Any]:
    """Return a copy of everything that a session knows."""
    kept = {name: getattr(state, name) for name in state.__struct_fields__}
    return {name: copy.copy(value) for name, value in kept.items()}


@per_profile
async def test_a_view_depends_on_catalog_and_session_alone_and_changes_neither(profile: str) -> None:
    async with opened() as (crib, _):
        session = crib.session(profile=profile)
        visible = session.visible
        view = strategy_of(visible.profile).view
        before, version = told(session.state), crib.catalog.version
        first, second = view(visible), view(session.visible)
        assert first == second
        assert [tool.digest for tool in first.tools] == [tool.digest for tool in second.tools]
        assert (told(session.state), crib.catalog.version) == (before, version)


@per_profile
async def test_the_list_is_the_same_to_the_byte_in_another_session_and_another_crib(profile: str) -> None:
    async with opened() as (one, _), opened() as (other, _):
        first = one.session(profile=profile)
        assert first.listing == one.session(profile=profile).listing == other.session(profile=profile).listing
        assert first.instructions == other.session(profile=profile).instructions


@per_profile
async def test_calls_that_load_nothing_leave_the_list_as_it_is_to_the_byte(profile: str) -> None:
    async with opened() as (crib, _):
        session = crib.session(profile=profile)
        before = session.listing
        for name in ("zzqx", "read_note", *session.visible.profile.verbs.values()):
            await session.call(name, {"wrong": 1})
        assert session.listing == before


@per_profile
async def test_what_is_core_stands_first_in_the_order_of_the_profile(profile: str) -> None:
    async with opened() as (crib, _):
        core = ["open_drawer_5", "greet"]
        crib.profiles.add({"name": "mine", "extends": profile, "core": core})
        shown = names(crib.session(profile="mine"))
        if profile in ("flat", "gateway"):  # everything, and nothing: there is no core to put first
            assert shown == names(crib.session(profile=profile))
        else:
            assert shown[:2] == core


# Scope

SCOPE = {"builtin": 5, "gateway": 4, "selection": 3}
"""Catalog → how many of its tools, evenly spread, a session is cut down to."""


@pytest.mark.parametrize("catalog", SCOPE)
@per_profile
async def test_nothing_that_is_said_or_found_goes_beyond_the_scope(profile: str, catalog: str) -> None:
    async with catalog_of(catalog) as crib:
        every = list(crib.catalog.tools)
        allowed = every[:: len(every) // SCOPE[catalog]]
        session = crib.session(profile=profile, allowed_tools=allowed)
        left = [tool for name, tool in crib.catalog.tools.items() if name not in allowed]
        said = await everything_said(session, every)
        verbs = {*session.visible.profile.verbs.values(), *session.visible.profile.verbs}
        theirs = " ".join(crib.catalog.tools[name].description for name in allowed)  # what an author says, is said
        named = [tool.name for tool in left if re.search(rf"(?<![\w.]){re.escape(tool.name)}(?![\w])", said)]
        described = [tool.name for tool in left if len(tool.description) > 20 and tool.description in said]
        assert described == []
        assert [name for name in named if "_" in name and name not in verbs and name not in theirs] == []
        assert await discovered(session, every) <= set(allowed)


# Verbs


@dataclass(frozen=True, kw_only=True)
class Flip:
    """Two calls of a verb that differ in one parameter."""

    parameter: str
    one: Mapping[str, Any]
    other: Mapping[str, Any]


Observed = tuple[list[str], list[str], list[tuple[str, Mapping[str, Any]]]]


def flip(parameter: str, one: Mapping[str, Any], other: Any) -> Flip:
    """Return a flip of `parameter`, which is `other` the second time."""
    return Flip(parameter=parameter, one=one, other={**one, parameter: other})


READ = {"name": "read_note", "arguments": {"path": "plan"}}
WRITE = {"op": "notes.note.write", "args": {"path": "a"}}
PACE = [{"type": "exec", "op": "talk.walk.pace"}] * 2
FLIPS: Mapping[str, Sequence[Flip]] = {
    "search": [
        flip("query", {"query": "erase a note"}, "greet somebody"),
        flip("limit", {"query": "open a drawer"}, 2),
    ],
    "describe": [flip("names", {"names": ["greet"]}, ["hang"])],
    "call": [flip("name", READ, "greet"), flip("arguments", READ, {"path": "draft"})],
    "call_readonly": [flip("name", READ, "greet"), flip("arguments", READ, {"path": "draft"})],
    "read": [
        flip("id", {}, "ARTIFACT"),
        flip("offset", {"id": "ARTIFACT"}, 7),
        flip("find", {"id": "ARTIFACT"}, "1"),
        flip("limit", {"id": "ARTIFACT"}, 9),
    ],
    "browse": [],
    "load": [flip("category", {"category": "talk"}, "notes"), flip("tool_name", {"tool_name": "greet"}, "hang")],
    "browse_rules": [],
    "load_rule": [flip("id", {"id": "weather"}, "slack")],
    "save_rule": [
        flip(parameter, {parameter: "weather"}, "slack") for parameter in ("id", "project_id", "type", "content")
    ],
    "delete_rule": [flip("id", {"id": "weather"}, "slack")],
    "list": [flip("category", {"category": "talk"}, "notes"), flip("verbose", {"category": "notes"}, True)],
    "schemas": [flip("names", {"names": ["greet"]}, ["hang"])],
    "help": [
        flip("path", {"path": "root"}, "talk"),
        flip("format", {"path": "notes.note.read"}, "full"),
        flip("include_examples", {"path": "notes.note.read"}, False),
        flip("include_schemas", {"path": "notes.note.read"}, True),
    ],
    "exec": [
        flip("op", WRITE, "notes.note.read"),
        flip("args", WRITE, {"path": "b"}),
        flip("idempotency_key", WRITE, "k1"),
        flip("dry_run", WRITE, True),
    ],
    "select": [
        flip("task", {"task": "erase a note"}, "greet somebody"),
        flip("names", {"names": ["greet"]}, ["hang"]),
        flip("capabilities", {"capabilities": ["talk"]}, ["notes"]),
        flip("skill_groups", {"skill_groups": ["notes"]}, ["rain"]),
    ],
    "batch": [flip("ops", {"ops": PACE[:1]}, PACE), flip("mode", {"ops": PACE}, "parallel")],
}
"""Every parameter that a verb advertises, with two values that must not come to the same."""


async def observed(profile: str, folder: Path, verb: str, arguments: Mapping[str, Any]) -> Observed:
    """Return what two calls of the verb say, show and do, in a crib of their own."""
    async with opened() as (crib, world):
        skills = skills_of(folder, ["weather", "slack"], GROUPS)
        await crib.tools.mount_source(skills, prefix=False, trusted=True)
        await skills.ready()
        session = crib.session(profile=profile)
        given = dict(arguments)
        if verb == "read":
            artifact = (await crib.session(profile="flat").call("find_lines")).meta["artifact"]
            given = {name: artifact if value == "ARTIFACT" else value for name, value in arguments.items()}
        world.ledger.clear()
        shown = session.visible.profile.verbs[verb]
        texts = [PASSING.sub("…", (await session.call(shown, given)).text) for _ in range(2)]
        return texts, names(session), world.ledger


@pytest.mark.parametrize(
    ("profile", "verb"),
    [
        (profile, verb)
        for profile, verbs in {
            "adaptive": ("search", "describe", "call", "call_readonly", "read"),
            "gateway": ("help", "exec", "batch"),
            "introspection": ("list", "schemas", "call", "read"),
            "tiered": ("load", "load_rule", "save_rule", "delete_rule", "describe", "call", "read"),
            "flat": ("read",),
            "selection": ("select", "call", "read"),
        }.items()
        for verb in verbs
    ],
)
async def test_every_parameter_that_a_verb_advertises_has_an_effect(profile: str, verb: str, tmp_path: Path) -> None:
    seen: dict[str, Observed] = {}
    without_effect: list[str] = []
    for changed in FLIPS[verb]:
        key = repr(changed.one)
        if key not in seen:
            seen[key] = await observed(profile, tmp_path, verb, changed.one)
            assert seen[key] == await observed(profile, tmp_path, verb, changed.one), "two calls differ by themselves"
        if seen[key] == await observed(profile, tmp_path, verb, changed.other):
            without_effect.append(changed.parameter)

    assert without_effect == []


@per_profile
async def test_every_parameter_of_every_verb_is_tried(profile: str) -> None:
    async with opened() as (crib, _):
        session = crib.session(profile=profile, grows=False)
        declared = {tool.name: set(tool.input_schema["properties"]) for tool in session.tools if tool.name in RESERVED}
        tried = {
            shown: {changed.parameter for changed in FLIPS[verb]}
            for verb, shown in session.visible.profile.verbs.items()
            if shown in declared
        }
        assert declared == tried


# Profiles are data


@per_profile
async def test_a_profile_of_the_users_own_speaks_of_its_verbs_by_its_names_only(profile: str) -> None:
    async with opened() as (crib, _):
        verbs = {verb: f"my_{verb}" for verb in crib.profiles[profile].verbs}
        core = [name for name in crib.profiles[profile].core if name not in RESERVED]
        crib.profiles.add({"name": "mine", "extends": profile, "verbs": verbs, "core": core})
        session = crib.session(profile="mine")
        known = list(crib.catalog.tools)
        assert await discovered(session, known) == await discovered(crib.session(profile=profile), known)
        said = await everything_said(session, ["greet"])
        refused = [(await session.call(name, {"wrong": 1})).text for name in ("zzqx", *verbs.values())]
        unknown = [await session.call(name, {"wrong": 1}) for name in crib.profiles[profile].verbs.values()]
        assert [name for name in RESERVED if name in said + "".join(refused)] == []
        assert {result.error.code for result in unknown if result.error} == {"not_found"}


@per_profile
async def test_any_strategy_goes_with_any_envelope(profile: str) -> None:
    async with opened() as (crib, world):
        for envelope in ENVELOPES:
            crib.profiles.add({"name": f"mine-{envelope}", "extends": profile, "envelope": envelope})
            session = crib.session(profile=f"mine-{envelope}")
            fine = await session.call("read_note", {"path": "plan"})
            wrong = await session.call("read_note", {"path": 7})
            assert (envelope, fine.is_error, "ann" in fine.text) == (envelope, False, True)
            code = wrong.error.code if wrong.error else ""
            assert (envelope, code, "path" in wrong.text) == (envelope, "invalid_arguments", True)
        assert world.reached == ["read_note"] * len(ENVELOPES)


BROKEN: Mapping[str, tuple[dict[str, Any], str]] = {
    "an option": ({"options": {"standig": 1}}, "options.standig"),
    "a verb": ({"verbs": {"serch": "find"}}, "did you mean search"),
    "an envelope": ({"envelope": "typd"}, "did you mean typed"),
    "a strategy": ({"strategy": "teired"}, "did you mean tiered"),
    "a key": ({"lifetme": "session"}, "did you mean lifetime"),
    "a name of a verb": ({"verbs": {"read": "read it!"}}, "verbs.read"),
    "a value": ({"on_miss": "guess"}, "on_miss"),
    "a type": ({"core": "greet"}, "core"),
}


@per_profile
async def test_what_a_profile_says_and_nobody_knows_is_refused_when_it_is_loaded(profile: str) -> None:
    async with opened() as (crib, _):
        for said, told in BROKEN.values():
            with pytest.raises(ConfigError, match=re.escape(told)):
                crib.profiles.add({"name": "mine", "extends": profile, **said})
            assert "mine" not in crib.profiles


@per_profile
async def test_a_tool_that_no_source_provides_is_skipped_and_reported(profile: str) -> None:
    async with opened() as (crib, _):
        crib.profiles.add({"name": "mine", "extends": profile, "core": ["greet", "zzqx"], "names": {"hi": "nowhere"}})
        shown = names(crib.session(profile="mine"))
        assert not {"zzqx", "hi", "nowhere"} & set(shown)
        (problem,) = [problem for problem in crib.problems if "zzqx" in problem.message]
        assert ("hi" in problem.message, problem.source) == (True, "mine")


@per_profile
async def test_a_name_that_a_profile_gives_a_tool_is_shown_called_and_described(profile: str) -> None:
    async with opened() as (crib, world):
        rename = {"hello": {"tool": "greet", "args": {"whom": "name"}}}
        crib.profiles.add({"name": "mine", "extends": profile, "names": rename, "core": ["hello"]})
        session = crib.session(profile="mine")
        assert (await session.call("hello", {"whom": "Bo"})).is_error is False
        assert world.ledger == [("greet", {"name": "Bo"})]
        if profile != "gateway":
            (shown,) = [tool for tool in session.tools if tool.name == "hello"]
            assert set(shown.input_schema["properties"]) == {"whom"}
        assert "greet" not in names(session)


@per_profile
async def test_a_strategy_that_is_switched_off_shows_everything(profile: str) -> None:
    async with opened() as (crib, _):
        crib.profiles.add({"name": "mine", "extends": profile, "progressive": False})
        session = crib.session(profile="mine")
        assert set(crib.catalog.tools) <= set(names(session))
        assert (await session.call("greet", {"name": "Bo"})).is_error is False
