"""No set of rules, permissions, modes and answers grants what a deny rule covers; everything else runs on a yes.

What a rule covers is written down here once more, by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rig import PATIENCE
from toolcrib import Toolcrib, tool
from toolcrib.config import Directories, Settings
from toolcrib.core.permission import EFFECTS, Answer, Effect, Question, Verdict
from toolcrib.policy.modes import MODES
from toolcrib.policy.settings import Identity

RULES: Mapping[str, Callable[[str, Mapping[str, Any]], bool]] = {
    "*": lambda name, given: True,
    "pay": lambda name, given: name == "pay",
    "pay(amount>100)": lambda name, given: name == "pay" and given["amount"] > 100,
    "pay(to=b*)": lambda name, given: name == "pay" and given["to"].startswith("b"),
    "Bash": lambda name, given: name == "shell",
    "Bash(rm:*)": lambda name, given: name == "shell" and "rm x" in given["command"],
    "kind:write": lambda name, given: name == "pay",
    "kind:destructive": lambda name, given: name == "shell",
    "look": lambda name, given: name == "look",
}
CALLS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("pay", {"amount": 5, "to": "eve"}),
    ("pay", {"amount": 500, "to": "bob"}),
    ("shell", {"command": "ls -la"}),
    ("shell", {"command": "cd a && rm x"}),
    ("look", {"at": "it"}),
)
YES: tuple[Verdict, ...] = ("yes", "once", "always", "turn", "idle", "all")
RAN: list[tuple[str, Mapping[str, Any]]] = []


@tool(kind="write")
async def pay(amount: int, to: str) -> None:
    """Pay."""
    RAN.append(("pay", {"amount": amount, "to": to}))


@tool(category="shell", kind="destructive")
async def shell(command: str) -> None:
    """Run a command."""
    RAN.append(("shell", {"command": command}))


@tool(kind="read")
async def look(at: str) -> None:
    """Look at something."""
    RAN.append(("look", {"at": at}))


Rules = Mapping[Effect, list[str]]
rules_of = st.fixed_dictionaries({effect: st.lists(st.sampled_from(list(RULES)), max_size=2) for effect in EFFECTS})


@dataclass(frozen=True, kw_only=True)
class Case:
    """What somebody may have configured and said. Rules as they are written, layer by layer."""

    everybody: Rules
    mine: Rules
    of_mode: Rules
    of_session: Rules
    mode: str
    permissions: Mapping[str, Effect]
    answer: Verdict

    def denies(self, name: str, given: Mapping[str, Any]) -> bool:
        """Whether a deny of any layer covers the call."""
        layers = (self.everybody, self.mine, self.of_mode, self.of_session)
        return any(RULES[text](name, given) for layer in layers for text in layer["deny"])

    def settings(self) -> Settings:
        """Return the configuration."""
        mode = replace(MODES[self.mode], name="own", rules=self.of_mode)
        return Settings.of(
            Directories.of({}),
            builtins=False,
            modes={**MODES, "own": mode},
            identities={"ann": Identity(rules={effect: tuple(texts) for effect, texts in self.mine.items()})},
            tool_permissions=self.permissions,
            rules=self.everybody,
        )


async def ran(case: Case) -> list[tuple[str, Mapping[str, Any]]]:
    """Make every call twice, so that what was answered before is tried, and return which ran."""

    async def approver(question: Question) -> Answer:
        return Answer(verdict=case.answer)

    RAN.clear()
    async with Toolcrib(case.settings(), memory=True) as crib:
        crib.add(pay, shell, look)
        session = crib.session(principal="ann", mode="own", rules=case.of_session, approver=approver)
        with anyio.fail_after(PATIENCE):
            for name, given in CALLS * 2:
                await session.call(name, given)
    return list(RAN)


@pytest.mark.long
@pytest.mark.slow
@given(
    case=st.builds(
        Case,
        everybody=rules_of,
        mine=rules_of,
        of_mode=rules_of,
        of_session=rules_of,
        mode=st.sampled_from(["cautious", "autonomous", "manual"]),
        permissions=st.dictionaries(st.sampled_from(["pay", "sh*", "look"]), st.sampled_from(["allow", "ask"])),
        answer=st.sampled_from(YES),
    )
)
def test_what_a_deny_rule_covers_is_never_granted_and_all_else_runs_on_a_yes(case: Case) -> None:
    granted = anyio.run(ran, case)

    assert granted == [(name, given) for name, given in CALLS * 2 if not case.denies(name, given)]
