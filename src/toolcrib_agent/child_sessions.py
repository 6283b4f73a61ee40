"""Session of a sub-agent: its own activation and tool runtime, and never more rights than its parent."""

from __future__ import annotations

import secrets

from toolcrib.core.permission import Effect
from toolcrib.core.session import SessionState
from toolcrib.core.tool import Tool
from toolcrib.crib import Session
from toolcrib.crib.plans import end_planning

from .tools import NEEDS, SOURCE

__all__ = ["child_of", "follow", "readable", "tell_parent"]


def child_of(parent: Session, only: frozenset[str] | None = None, *, may_ask: bool = True) -> Session:
    """Open a session that works for `parent`: the same principal, files, rules, mode and scope, or less.

    `only` cuts the scope down to these catalog names; without `may_ask` what must be asked is denied. What the child
    calls is counted in its parent's budgets. Answers that were wide in the parent are not in the child; `never` is.
    """
    state = parent.state
    scope = only
    for names in (state.scope.allowed, state.scope.exact):
        if names is not None:
            scope = frozenset(names) if scope is None else scope & frozenset(names)
    child = parent.sibling(
        key=f"{state.key}/{secrets.token_hex(4)}",
        principal=state.principal,
        instance=state.instance,
        profile=state.profile,
        mode=state.mode,
        rules=_rules(state),
        approver=state.approvals.approver if may_ask else None,
        elicitor=state.elicitor if may_ask else None,
        allowed_tools=scope,
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
        for_client=False,
    )
    _share(state, child.state)
    return child


def _share(state: SessionState, child: SessionState) -> None:
    """Give the child what no option sets: its parent's files as they are, its budgets, and what limits it."""
    if not state.scope.planning:
        end_planning(child)
    child.files.workspace = state.files.workspace
    child.scope.provided = state.scope.provided.difference(NEEDS.values())
    child.limits = state.limits
    child.usage.calls, child.usage.tokens, child.usage.rates = state.usage.calls, state.usage.tokens, state.usage.rates
    child.scope.disabled = state.scope.disabled
    child.approvals.remembered.update(
        (key, effect) for key, effect in state.approvals.remembered.items() if effect == "deny"
    )
    child.taint.source, child.taint.private_read_by = state.taint.source, state.taint.private_read_by
    child.taint.links.update(state.taint.links)


def follow(parent: Session, child: Session) -> None:
    """Keep the child in its parent's current mode: a change of mode applies to all work in progress."""
    if child.mode == parent.mode:
        return
    child.mode = parent.mode
    child.state.files.workspace = parent.state.files.workspace
    if not parent.state.scope.planning:
        end_planning(child.state)


def tell_parent(parent: Session, child: Session) -> None:
    """Let the parent be as careful as its child has to be: the child's answer may repeat what it has read."""
    ours, theirs = parent.state, child.state
    is_news = theirs.taint.source and not ours.taint.source
    ours.taint.source = ours.taint.source or theirs.taint.source
    ours.taint.private_read_by = ours.taint.private_read_by or theirs.taint.private_read_by
    ours.approvals.remembered.update(
        (key, effect) for key, effect in theirs.approvals.remembered.items() if effect == "deny"
    )
    if is_news:  # answers that were to hold for the session were given without knowing
        for key in [key for key, effect in ours.approvals.remembered.items() if effect == "allow"]:
            del ours.approvals.remembered[key]


def readable(parent: Session) -> frozenset[str]:
    """Return the catalog names of the parent's tools that only read, need no approval and are vouched for."""
    return frozenset(tool.name for tool in parent.scene.offered() if _only_reads(tool, parent.state))


def _only_reads(tool: Tool, state: SessionState) -> bool:
    is_said = tool.kind == "read" and tool.approval != "always" and tool.origin not in state.treat_as_write
    return is_said and tool.source != SOURCE and not {"asks_user", "outbound"}.intersection(tool.traits)


def _rules(state: SessionState) -> dict[Effect, list[str]]:
    rules: dict[Effect, list[str]] = {}
    for effect, texts in state.rules:
        rules.setdefault(effect, []).extend(texts)
    return rules
