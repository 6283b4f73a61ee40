"""One decision for one call: what explains a call and what dispatches it agree, in every profile, for every built-in
tool, whether the defaults of its schema are written out or left out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from contract.seats import PROFILES
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.core.elicitation import Clarification
from toolcrib.core.permission import Effect
from toolcrib.core.schema import example
from toolcrib.core.tool import Tool
from toolcrib.crib.session import Session
from toolcrib.testing import RecordingApprover

Rules = Mapping[Effect, list[str]]
RULES: Final[Mapping[str, Rules]] = {
    "no rules": {},
    "a denied command": {"deny": ["Bash(rm:*)"]},
    "an allowed command": {"allow": ["Bash(touch:*)"]},
    "files": {"deny": ["Read(.env)", "Edit(./secret/**)"], "allow": ["Read(./src/**)", "Edit(./src/**)"]},
    "conditions on arguments": {
        "deny": ["run_command(working_dir=secret*)", "git_push(remote=prod*)"],
        "ask": ["*(path=.)", "git_push(remote=origin)", "grep(output_mode=content)", "*(timeout=null)"],
        "allow": ["run_command(background=false)", "write_file(path=*.md)"],
    },
}
COMMANDS: Final = ("echo hi", "touch made.txt", "rm made.txt")
AT_ONCE: Final = 20
"""Names that one call of `get_tool_schemas` takes."""
FOR_ALL_TOOLS: Final = (
    ("cautious", "files"),
    ("autonomous", "conditions on arguments"),
)
FOR_COMMANDS: Final = (
    *(("cautious", rules) for rules in RULES),
    *(("autonomous", rules) for rules in RULES),
    *(("manual", rules) for rules in RULES),
)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A decision: what comes of the call, by which rule; or why it does not come to one."""

    effect: str
    """Empty where the envelope of the profile does not repeat it: the rule tells it then."""
    rule: str = ""
    code: str = ""


@asynccontextmanager
async def workspace(folder: Path) -> AsyncGenerator[Toolcrib]:
    settings = bare().with_values(builtins=True, workspace=WorkspaceSpec(roots=(folder,)))
    async with Toolcrib(settings, memory=True) as crib:
        yield crib


async def session_of(crib: Toolcrib, profile: str, mode: str, rules: Rules) -> Session:
    session = crib.session(
        profile=profile, mode=mode, rules=dict(rules), approver=RecordingApprover(), elicitor=say_nothing
    )
    if profile == "selection":
        session.begin(intent={"required_tools": list(crib.catalog.tools)})
    elif profile == "introspection":
        names = [
            face.name for tool in session.visible.offered() for face in session.visible.aliases.presentations(tool)
        ]
        for begin in range(0, len(names), AT_ONCE):
            await session.call("get_tool_schemas", {"names": names[begin : begin + AT_ONCE]})
    return session


async def say_nothing(clarification: Clarification) -> str | None:
    return None


def runs_commands(tool: Tool) -> bool:
    return tool.category in ("notebook", "shell")


def forms_of(tool: Tool) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield arguments with the defaults of the schema left out, and the same with every default written out."""
    properties: dict[str, Any] = tool.input_schema.get("properties", {})
    defaults = {name: part["default"] for name, part in properties.items() if "default" in part}
    given = [example(tool.input_schema)]
    if runs_commands(tool):
        given += map(dict, tool.guidance.examples[:1])
    if "command" in properties and tool.category == "shell":
        given += [{**given[0], "command": command} for command in COMMANDS]
    for arguments in given:
        yield (
            {name: value for name, value in arguments.items() if name not in defaults or defaults[name] != value},
            {**defaults, **arguments},
        )


async def dispatched(session: Session, name: str, arguments: dict[str, Any]) -> Verdict:
    result = await session.call(name, arguments, dry_run=True)
    if result.error is None:
        assert result.structured_content is not None
        said: dict[str, Any] = result.structured_content.get("result", result.structured_content)
        return Verdict(effect=said.get("decision", ""), rule=result.meta["rule"])
    rule = result.error.details.get("rule", "") if result.error.details else ""
    return Verdict(effect="deny" if rule else "refused", rule=rule, code=result.error.code)


def explained(crib: Toolcrib, session: Session, name: str, arguments: dict[str, Any]) -> Verdict:
    why = crib.explainer.why(name, session, arguments)
    if why.stopped_by == "rule":
        return Verdict(effect="deny", rule=why.reason.removeprefix("denied by "), code=why.code)
    if why.verdict == "refused":
        return Verdict(effect="refused", code=why.code)
    return Verdict(effect={"runs": "allow", "asks": "ask"}[why.verdict], rule=why.reason)


def decided_by_policy_test(crib: Toolcrib, session: Session, name: str, arguments: dict[str, Any]) -> Verdict:
    """What `toolcrib policy test --tool` prints."""
    decision = crib.explainer.decide(name, session, arguments)
    return Verdict(effect=decision.effect, rule=decision.rule, code="denied" if decision.effect == "deny" else "")


def faces_of(session: Session, tools: Iterable[Tool]) -> dict[str, Tool]:
    """Return tools by every name that the profile takes, each with the arguments that go with that name."""
    own = {tool.name: tool for tool in tools}
    return {**own, **{face.name: face for tool in own.values() for face in session.visible.aliases.presentations(tool)}}


@pytest.mark.parametrize("profile", PROFILES)
async def test_explaining_and_dispatching_a_built_in_tool_agree_with_its_defaults_in_and_out(
    profile: str, tmp_path: Path
) -> None:
    decided, different = set[str](), list[Any]()
    async with workspace(tmp_path) as crib:
        tools = crib.catalog.tools.values()
        for mode, rules in (*FOR_ALL_TOOLS, *FOR_COMMANDS):
            session = await session_of(crib, profile, mode, RULES[rules])
            concerned = tools if (mode, rules) in FOR_ALL_TOOLS else filter(runs_commands, tools)
            for name, tool in faces_of(session, concerned).items():
                for arguments in (form for forms in forms_of(tool) for form in forms):
                    met = await dispatched(session, name, arguments)
                    if met.code == "invalid_arguments":
                        continue
                    told = [explained(crib, session, name, arguments)]
                    if met.effect != "refused":
                        decided.add(name)
                        told.append(decided_by_policy_test(crib, session, name, arguments))
                    if [one if met.effect else replace(one, effect="") for one in told] != [met] * len(told):
                        different.append((mode, rules, name, arguments, met, told))

    assert different == []
    assert len(decided) > 120
    assert {"find_and_replace", "git_push", "notebook_execute", "run_command", "run_tests", "write_file"} <= decided


async def test_a_decision_is_the_same_with_the_defaults_left_out_and_written_out(tmp_path: Path) -> None:
    different = list[Any]()
    async with workspace(tmp_path) as crib:
        for rules in RULES.values():
            session = await session_of(crib, "flat", "cautious", rules)
            for tool in crib.catalog.tools.values():
                for forms in forms_of(tool):
                    decisions = [crib.policy.decide(tool, form, session.state) for form in forms]
                    if decisions[0] != decisions[1]:
                        different.append((tool.name, forms, decisions))

    assert different == []
