"""For programs that run agents: sessions of sub-agents, and parts of a crib that an agent uses.

The session of a sub-agent has its own activation and tool runtime, and never more rights than that of its parent:
`child_of` copies them, and `follow` takes away at each event of the child what the parent has lost since. Taint goes
both ways, with messages: to the child with a task (`tell_child`), to the parent with a report (`tell_parent`).

A package that brings tools of its own for the sessions of MCP clients names an `AgentToolset` under the entry point
group `toolcrib.agent_tools`.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from .core.permission import Effect
from .core.session import BUILT_IN, SessionState
from .core.taint import Taint
from .core.tool import Tool
from .crib.agents import AgentToolset
from .crib.plan_mode import end_planning
from .crib.session import Session, SessionParts
from .disclosure.settings import BY_CATALOG
from .policy.questions import shown_text
from .results.redaction.redactor import Redactor
from .telemetry.tokens import definition_text, estimate

__all__ = [
    "AGENT_NEEDS",
    "AgentToolset",
    "Redactor",
    "SessionParts",
    "child_of",
    "definition_text",
    "estimate",
    "follow",
    "program_session",
    "readable",
    "shown_text",
    "tell_child",
    "tell_parent",
]

AGENT_NEEDS: Final = frozenset({"local_model", "parent_agent", "spawning", "user"})
"""Requirements of tools that an agent meets in the session that it works in: no child inherits them.

Another model for small tasks, an agent that gave this one its task, the right to spawn others, a user to ask.
"""
_NARROWING: Final[tuple[Effect, ...]] = ("deny", "ask")

_RESEARCH: Final = frozenset(
    {
        "display_diagram",
        "find_references",
        "get_diagnostics",
        "git_diff",
        "git_log",
        "git_status",
        "grep",
        "list_directory",
        "read_file",
        "search_files",
    }
)
"""Built-in tools of a delegated task (seed 002): a small model reads their definitions in every turn."""


def child_of(parent: Session, only: frozenset[str] | None = None, *, may_ask: bool = True) -> Session:
    """Open a session that works for `parent`: the same principal, files, rules, mode and scope, or less.

    `only` cuts the scope down to these catalog names; without `may_ask` what must be asked is denied. What the child
    calls is counted in its parent's budgets. Answers that were wide in the parent are not in the child; `never` is.

    The child of a client's session has no client that could ask: its calls that ask wait in the store, and where the
    client approves calls itself (no guard), the child's writes ask too.
    """
    state = parent.state
    child = parent.sibling(
        key=f"{state.key}/{secrets.token_hex(4)}",
        principal=state.principal,
        instance=state.instance,
        profile=state.profile,
        mode=_mode(parent),
        rules=_rules(state),
        approver=state.approvals.approver if may_ask and not state.audience.is_client else None,
        elicitor=state.elicitor if may_ask and not state.audience.is_client else None,
        allowed_tools=_scope(state, only),
        context=state.defaults,
        contexts=state.scope.contexts,
        versions=state.scope.versions,
        user=state.user,
        available=state.scope.available,
        cwd=state.files.cwd,
        workspace=None,
        task=state.files.task,
        shadow=False,
        grows=state.audience.grows,
        for_client=state.audience.is_client and may_ask,
    )
    if not state.scope.planning:
        end_planning(child.state)
    theirs = child.state
    theirs.files.workspace = state.files.workspace
    theirs.scope.provided = state.scope.provided.difference(AGENT_NEEDS)
    theirs.usage.calls, theirs.usage.tokens, theirs.usage.rates = (
        state.usage.calls,
        state.usage.tokens,
        state.usage.rates,
    )
    theirs.limits = state.limits
    theirs.scope.disabled = state.scope.disabled
    tell_child(parent, child)
    return child


def program_session(parent: Session, only: frozenset[str], folder: Path, mode: str) -> Session:
    """Open a session for a program that works for `parent` in a folder of its workspace, in a mode of its own.

    What the parent's profile denies or asks holds in it, too; its tools are shown by their own names, all of them. It
    does not ask, and the store keeps nothing of it but the record of its calls.

    It begins without the taint of its parent: that was part of the decision on the call that starts the program, and no
    person could answer the questions of its calls. The caller makes sure that they reach nothing but the folder.
    """
    child = child_of(parent, only, may_ask=False)
    rules, of_profile = _rules(parent.state), parent.visible.profile.session.rules
    for effect in _NARROWING:
        rules[effect] = [*rules.get(effect, ()), *of_profile.get(effect, ())]
    state = child.state
    child = child.sibling(
        key=state.key,
        principal=state.principal,
        profile=BY_CATALOG,
        mode=mode,
        rules=rules,
        workspace=folder,
        cwd=folder,
        shadow=False,
        grows=False,
    )
    state.scope.provided = state.scope.provided.intersection(parent.state.scope.provided)
    state.keep_for = 0.0
    state.taint = Taint()
    return child


def follow(parent: Session, child: Session) -> None:
    """Keep the child within its parent's current rights; scope that it has lost does not come back.

    A parent may lose rights while its child works: another mode, a narrower interaction, a switched-off tool. What a
    person refuses for ever to one of them is refused to both.
    """
    ours, theirs = parent.state, child.state
    theirs.scope.allowed = _scope(ours, theirs.scope.allowed)
    theirs.scope.contexts &= ours.scope.contexts
    theirs.scope.versions = ours.scope.versions
    theirs.scope.available = ours.scope.available
    theirs.scope.provided &= ours.scope.provided.union(AGENT_NEEDS)
    theirs.rules, theirs.limits = ours.rules, ours.limits
    denials = _denials(ours) | _denials(theirs)
    theirs.approvals.remembered.update(denials)
    ours.approvals.remembered.update(denials)
    mode = _mode(parent)
    if child.mode != mode:
        child.mode = mode
        theirs.files.workspace = ours.files.workspace
        if not ours.scope.planning:
            end_planning(theirs)
    elif ours.scope.planning:
        theirs.scope.planning = True


def tell_child(parent: Session, child: Session) -> None:
    """Let the child be as careful as its parent: a task or message may repeat what the parent has read."""
    ours, theirs = parent.state, child.state
    theirs.approvals.remembered.update(_denials(ours))
    theirs.taint.source = theirs.taint.source or ours.taint.source
    theirs.taint.private_read_by = theirs.taint.private_read_by or ours.taint.private_read_by
    theirs.taint.is_unread = theirs.taint.is_unread or ours.taint.is_unread
    theirs.taint.links.update(ours.taint.links)


def tell_parent(parent: Session, child: Session) -> None:
    """Let the parent be as careful as its child has to be: the child's answer may repeat what it has read."""
    ours, theirs = parent.state, child.state
    parent.parts.policy.taint.mark_tainted_by(theirs.taint.source, ours)
    ours.taint.private_read_by = ours.taint.private_read_by or theirs.taint.private_read_by
    ours.approvals.remembered.update(_denials(theirs))


def readable(parent: Session) -> frozenset[str]:
    """Return the catalog names of the parent's tools that only read, need no approval and are vouched for."""
    return frozenset(tool.name for tool in parent.visible.offered() if _only_reads(tool, parent.state))


def _only_reads(tool: Tool, state: SessionState) -> bool:
    is_said = tool.kind == "read" and tool.approval != "always" and not tool.is_among(state.treat_as_write)
    is_known = tool.source not in BUILT_IN or tool.name in _RESEARCH
    is_of_agent = not AGENT_NEEDS.isdisjoint(tool.availability.needs)
    return is_said and is_known and not is_of_agent and not {"asks_user", "outbound"}.intersection(tool.traits)


def _scope(state: SessionState, only: frozenset[str] | None) -> frozenset[str] | None:
    """Return the names that a child may reach: those of the parent's scope and interaction, and of `only`."""
    for names in (state.scope.allowed, state.scope.exact):
        if names is not None:
            only = frozenset(names) if only is None else only & frozenset(names)
    return only


def _mode(parent: Session) -> str:
    """Return the child's mode. Without a guard a client approves its own calls, and none of a sub-agent's."""
    parts, state = parent.parts, parent.state
    asks_itself = state.audience.is_client and not parts.settings.policy.guard
    return "cautious" if asks_itself and parts.policy.mode(state.mode).write == "allow" else state.mode


def _denials(state: SessionState) -> dict[str, Effect]:
    return {key: effect for key, effect in state.approvals.remembered.items() if effect == "deny"}


def _rules(state: SessionState) -> dict[Effect, list[str]]:
    rules: dict[Effect, list[str]] = {}
    for effect, texts in state.rules:
        rules.setdefault(effect, []).extend(texts)
    return rules
