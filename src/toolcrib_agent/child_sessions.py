"""Session of a sub-agent: its own activation and tool runtime, and never more rights than its parent."""

from __future__ import annotations

import secrets

from toolcrib.core.permission import Effect
from toolcrib.core.session import SessionState
from toolcrib.core.tool import Tool
from toolcrib.crib import Session
from toolcrib.crib.planning import end_planning

from .tools import NEEDS, SOURCE

__all__ = ["child_of", "follow", "readable", "tell_parent"]


def child_of(parent: Session, only: frozenset[str] | None = None, *, may_ask: bool = True) -> Session:
    """Open a session that works for `parent`: the same principal, files, rules, mode and scope, or less.

    `only` cuts the scope down to these catalog names; without `may_ask` what must be asked is denied. What the child
    calls is counted in its parent's budgets. Answers that were wide in the parent are not in the child; `never` is.
    """
    state = parent.state
    scope = only
    for names in (state.allowed, state.exact):
        if names is not None:
            scope = frozenset(names) if scope is None else scope & frozenset(names)
    child = parent.door.session(
        key=f"{state.key}/{secrets.token_hex(4)}",
        principal=state.principal,
        instance=state.instance,
        profile=state.profile,
        mode=state.mode,
        rules=_rules(state),
        approver=state.approver if may_ask else None,
        clarifier=state.clarifier if may_ask else None,
        allowed_tools=scope,
        context=state.defaults,
        contexts=state.contexts,
        versions=state.versions,
        user=state.user,
        available=state.available,
        cwd=state.cwd,
        workspace=None,
        task=state.task,
        shadow=False,
        grows=state.grows,
        for_client=False,
    )
    _share(state, child.state)
    return child


def _share(state: SessionState, child: SessionState) -> None:
    """Give the child what no option sets: its parent's files as they are, its budgets, and what limits it."""
    if not state.planning:
        end_planning(child)
    child.workspace = state.workspace
    child.provided = state.provided.difference(NEEDS.values())
    child.limits = state.limits
    child.spent, child.tokens, child.rates = state.spent, state.tokens, state.rates
    child.disabled = state.disabled
    child.remembered.update((key, effect) for key, effect in state.remembered.items() if effect == "deny")
    child.tainted, child.confided = state.tainted, state.confided
    child.links.update(state.links)


def follow(parent: Session, child: Session) -> None:
    """Keep the child in its parent's current mode: a change of mode applies to all work in progress."""
    if child.mode == parent.mode:
        return
    child.mode = parent.mode
    child.state.workspace = parent.state.workspace
    if not parent.state.planning:
        end_planning(child.state)


def tell_parent(parent: Session, child: Session) -> None:
    """Let the parent be as careful as its child has to be: the child's answer may repeat what it has read."""
    ours, theirs = parent.state, child.state
    is_news = theirs.tainted and not ours.tainted
    ours.tainted = ours.tainted or theirs.tainted
    ours.confided = ours.confided or theirs.confided
    ours.remembered.update((key, effect) for key, effect in theirs.remembered.items() if effect == "deny")
    if is_news:  # answers that were to hold for the session were given without knowing
        for key in [key for key, effect in ours.remembered.items() if effect == "allow"]:
            del ours.remembered[key]


def readable(parent: Session) -> frozenset[str]:
    """Return the catalog names of the parent's tools that only read, need no approval and are vouched for."""
    return frozenset(tool.name for tool in parent.scene.offered() if _only_reads(tool, parent.state))


def _only_reads(tool: Tool, state: SessionState) -> bool:
    is_said = tool.kind == "read" and tool.approval != "always" and tool.origin not in state.wary
    return is_said and tool.source != SOURCE and not {"asks_user", "outbound"}.intersection(tool.traits)


def _rules(state: SessionState) -> dict[Effect, list[str]]:
    rules: dict[Effect, list[str]] = {}
    for effect, texts in state.rules:
        rules.setdefault(effect, []).extend(texts)
    return rules
