"""What files the tools of a session may work on, by its options, its mode and the configuration."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import anyio

from ..config import Settings
from ..core.file_changes import PendingStore
from ..core.session import SessionState
from ..core.workspace import Workspace
from ..errors import UsageError
from ..policy.decision import Policy
from ..policy.modes import Mode
from ..workspace.disk import DiskWorkspace
from ..workspace.pending import PendingWorkspace
from ..workspace.shadow import Shadow, shadow_of
from ..workspace.tree import Tree
from .options import SessionOptions
from .pending import Pending, guard_of
from .planning import Plans, end_planning
from .shadows import Shadows

__all__ = ["Workspaces"]

_NEED: Final = "workspace"


class Workspaces:
    """Gives each session its workspace. One for a crib."""

    def __init__(self, settings: Settings, policy: Policy, store: Callable[[], PendingStore], plans: Plans) -> None:
        """`settings` name the folders of sessions that name none; `store` keeps what waits, once it is open.

        `plans` lets sessions plan whose mode wants it.
        """
        self._roots = settings.workspace.roots
        self._policy = policy
        self._store = store
        self._plans = plans
        self._programs = settings.environment.get("PATH", os.defpath)
        self._shadows: WeakKeyDictionary[SessionState, Shadow] = WeakKeyDictionary()
        self._making = anyio.Lock()
        self._guard = guard_of(settings)
        self.pending = Pending(store, self._guard)
        self.shadows = Shadows(self._roots, self._guard, self._programs)

    def arrange(self, state: SessionState, options: SessionOptions, *, is_new: bool) -> None:
        """Set the session's mode, and what its tools see. Raises `UsageError` for what is not there."""
        mode = self._policy.mode(options.get("mode") or state.mode)
        state.files.task = options.get("task", state.files.task)
        if "workspace" in options:
            self._shadows.pop(state, None)
            given = options["workspace"]
            state.files.workspace = None if given is None else self._given(given, state.files.cwd)
        elif is_new and self._roots:
            state.files.workspace = self._given(self._roots, state.files.cwd)
        if state.files.workspace is not None and state.files.cwd == Path():
            state.files.cwd = state.files.workspace.root
        if options.get("shadow", mode.shadow) and state not in self._shadows:
            self._shade(state)
        if is_new or mode.name != state.mode:
            end_planning(state)
            if mode.plan:
                self._plans.begin(state)
        self._enter(state, mode)

    async def ready(self, state: SessionState) -> None:
        """Make the shadow of a session that was promised one; nothing for every other. Raises `ToolFailure`."""
        shadow = self._shadows.get(state)
        if shadow is None:
            return
        async with self._making:
            if state.files.workspace is None or state.files.workspace.root != shadow.root:
                state.files.workspace = await shadow.open(self._guard)
                state.files.cwd = shadow.root
                self._enter(state, self._policy.mode(state.mode))

    def enter(self, state: SessionState, name: str) -> None:
        """Let the session work in a mode from now on; what waits for review goes on waiting.

        Raises `UsageError` for a mode that does not exist.
        """
        self.arrange(state, {"mode": name}, is_new=False)

    def _enter(self, state: SessionState, mode: Mode) -> None:
        state.mode = mode.name
        workspace = state.files.workspace
        if isinstance(workspace, DiskWorkspace | PendingWorkspace):
            state.files.workspace = self._diverted(workspace.tree, state, mode)
        needs = state.scope.provided - {_NEED}
        state.scope.provided = needs | {_NEED} if state.files.workspace is not None else needs

    def _shade(self, state: SessionState) -> None:
        """Promise the session a shadow; it is made before its first call."""
        if state.files.workspace is None:
            raise UsageError("a shadow stands for a workspace, and this session has none: session(workspace=…)")
        state.files.task = state.files.task or f"task-{secrets.token_hex(4)}"
        self._shadows[state] = shadow_of(state.files.workspace.root, state.files.task, self._programs)

    def _diverted(self, tree: Tree, state: SessionState, mode: Mode) -> Workspace:
        """Return the workspace over these files in this mode."""
        if mode.files == "direct":
            return DiskWorkspace.over(tree)
        owner = f"task {state.files.task}" if state.files.task else f"session {state.key}"
        return PendingWorkspace(tree, self._store(), principal=state.principal, owner=owner, files=mode.files)

    def _given(self, given: Any, cwd: Path) -> Workspace:
        if hasattr(given, "overlay"):
            return cast("Workspace", given)
        if isinstance(given, str | Path):
            folders: list[Any] = [given]
        else:
            folders = list(cast("Iterable[Any]", given)) if isinstance(given, Iterable) else []
        if not folders or not all(isinstance(folder, str | Path) for folder in folders):
            raise UsageError(f"workspace is a folder, or several, not {given!r}")
        first = Path(folders[0]).resolve()
        begin = cwd if cwd != Path() and cwd.resolve().is_relative_to(first) else None
        return DiskWorkspace(*folders, begin=begin, guard=self._guard)
