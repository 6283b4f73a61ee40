"""Workspaces of sessions: files, changes that wait for review, worktrees of tasks, and the sandbox of commands.

`Workspaces` puts together what a session gets: the folders of its options or of the configuration, on the disk or, by
its mode, behind a review (`FileChanges`) or in a worktree (`Shadows`), and around both the marks of untrusted content.
`Shells` looks for the sandbox of this machine, once, and only where a tool would use it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import anyio
from anyio import to_thread
from anyio.abc import SocketListener
from msgspec import Struct

from ..config import Settings
from ..core.awaited_files import AWAITED
from ..core.sandbox import Reach, Sandbox
from ..core.session import LOCAL, UNSANDBOXED, SessionState
from ..core.taint import StoredTaint
from ..core.workspace import PendingChange, PendingSet, PendingStore, Workspace
from ..errors import ToolFailure, UsageError
from ..mcp.client.launch.awaited_pins import awaited_files
from ..policy.decision import Policy
from ..policy.modes import Mode
from ..workspace.batch import is_written
from ..workspace.disk import DiskWorkspace, Tree
from ..workspace.git import is_from_commit
from ..workspace.marked_sandbox import MarkedSandbox
from ..workspace.paths import Guard, Roots
from ..workspace.pending_changes import PendingWorkspace
from ..workspace.review import OnConflict, accept, chosen, diff, reject
from ..workspace.shadow import Shadow, shadow_of, shadows_of
from ..workspace.tainted_files import FileMarks
from .options import SessionOptions
from .plan_mode import PlanMode, end_planning

_WORKSPACE: Final = "workspace"

_SHELL: Final = "shell"
_LANGUAGE_SERVER: Final = "language_server"
_SOCKETS: Final = "sockets"
_WITHOUT_SOCKETS: Final = ("landlock", "seatbelt")


class PendingFile(Struct, frozen=True, kw_only=True):
    """One change that waits for review."""

    path: str
    """Relative to the workspace where it lies below it."""
    kind: str
    """`file`, `folder` or `gone`."""
    size: int
    changed: float
    """Seconds since 1970."""
    owner: str
    """`session <key>` or `task <id>`."""
    workspace: str
    files: str
    """`review` or `audit`: how it was made."""


class FileChanges:
    """The changes of a principal that wait for review. Lives as long as its crib.

    Every method takes the session or task whose changes are meant; where only one of this workspace has any, none need
    be named.
    """

    def __init__(self, store: PendingStore, guard: Guard, marks: FileMarks) -> None:
        """`store` keeps them; `marks` are those of files with untrusted content."""
        self._store = store
        self._guard = guard
        self._marks = marks

    async def list(self, *, owner: str = "", principal: str = LOCAL) -> Sequence[PendingFile]:
        """Return the pending files, by owner and path; folders that were made on the way to a file are left out."""
        found: list[PendingFile] = []
        for one in await self._store.sets(principal):
            if owner in ("", one.key.owner):
                found += [_pending_file(one, change) for change in one.changes if not change.implied]
        return found

    async def diff(self, path: str = "", *, owner: str = "", principal: str = LOCAL) -> str:
        """Return the changes at and below `path`, or all, against the disk as it is now, as unified diffs."""
        waiting, tree = await self._of(owner, principal)
        named = [change for change in waiting.changes if not change.implied]
        if path:
            place = tree.place(path).path
            named = [change for change in named if Path(change.path).is_relative_to(place)]
        if not named:
            raise ToolFailure("not_found", f"nothing waits for review at {path or 'all'}")
        return "".join([await diff(tree, self._store, waiting.key, change) for change in named])

    async def accept(
        self,
        *paths: str,
        owner: str = "",
        principal: str = LOCAL,
        on_conflict: OnConflict = "refuse",
    ) -> Sequence[str]:
        """Let changes take place on the disk, all of them or none; return the paths. Without `paths` it is the batch.

        Raises `ToolFailure`: `conflict` for files that changed underneath, with what both sides did in its details,
        and `not_found` for a path at which nothing waits.
        """
        waiting, tree = await self._of(owner, principal)
        reviewed = {change.content for change in chosen(tree, waiting, paths or None) if change.content}
        accepted = await accept(tree, self._store, waiting.key, paths or None, on_conflict=on_conflict)
        await self._marks.forget_digests(reviewed)  # a person has seen this content
        return accepted

    async def reject(self, *paths: str, owner: str = "", principal: str = LOCAL) -> Sequence[str]:
        """Forget changes; return the paths. Without `paths` it is the batch. Raises `ToolFailure("not_found")`."""
        waiting, tree = await self._of(owner, principal)
        return await reject(tree, self._store, waiting.key, paths or None)

    async def _of(self, owner: str, principal: str) -> tuple[PendingSet, Tree]:
        """Return the one set that is meant, and its files."""
        sets = [one for one in await self._store.sets(principal) if owner in ("", one.key.owner)]
        if not sets:
            raise ToolFailure("not_found", f"nothing waits for review{f' of {owner}' if owner else ''}")
        if len(sets) > 1:
            owners = ", ".join(one.key.owner for one in sets)
            raise ToolFailure("invalid_arguments", f"several have changes that wait: {owners}", hint="name one of them")
        return sets[0], Tree(Roots(*map(Path, sets[0].key.workspace.split("\n"))), self._guard)


def guard_of(settings: Settings) -> Guard:
    """Return the guard that hides paths from tools: patterns of the configuration, and folders of ours."""
    spec, own = settings.workspace, settings.directories
    system = (Path("/proc"), Path("/sys"), Path("/dev"))
    return Guard(spec.guarded, spec.hard_links, (own.config, own.data, own.state, own.cache, own.runtime, *system))


def _pending_file(waiting: PendingSet, change: PendingChange) -> PendingFile:
    path, root = Path(change.path), Path(waiting.key.workspace.partition("\n")[0])
    return PendingFile(
        path=str(path.relative_to(root)) if path.is_relative_to(root) else change.path,
        kind=change.kind,
        size=change.size,
        changed=change.changed,
        owner=waiting.key.owner,
        workspace=str(root),
        files=waiting.files,
    )


class Shadows:
    """The git worktrees of tasks, for the person who merges or discards them. One for a crib.

    `workspace` defaults to the first folder of the configured workspace.
    """

    def __init__(self, roots: Sequence[Path], guard: Guard, programs: str, marks: FileMarks | None) -> None:
        """`programs` is where git is looked for; `marks` are those of files, None if there are none."""
        self._marks = marks
        self._roots = roots
        self._guard = guard
        self._programs = programs

    def list(self, *, workspace: str | Path | None = None) -> Sequence[str]:
        """Return the tasks that have a shadow, by name."""
        return [shadow.task for shadow in shadows_of(self._root(workspace), self._programs)]

    async def diff(self, task: str, *, workspace: str | Path | None = None) -> str:
        """Return the changes of a task, as a unified diff."""
        return await self._shadow(task, workspace).diff()

    async def merge(self, task: str, *, workspace: str | Path | None = None) -> Sequence[str]:
        """Put what a task changed into the main tree, all of it or nothing; return the paths. The shadow stays.

        Raises `ToolFailure("conflict")` naming every file that cannot be merged.
        """
        shadow = self._shadow(task, workspace)
        return await shadow.merge(Tree(Roots(shadow.workspace), self._guard), self._marks)

    async def discard(self, task: str, *, workspace: str | Path | None = None) -> None:
        """Remove a shadow and its branch; what was not merged is gone."""
        await self._shadow(task, workspace).discard()

    def _root(self, workspace: str | Path | None) -> Path:
        if workspace is None and not self._roots:
            raise UsageError("no workspace is configured: say which one is meant")
        return Path(self._roots[0] if workspace is None else workspace).resolve()

    def _shadow(self, task: str, workspace: str | Path | None) -> Shadow:
        root = self._root(workspace)
        shadow = shadow_of(root, task, self._programs)
        if not shadow.top.is_dir():
            there = ", ".join(self.list(workspace=root)) or "none"
            raise ToolFailure("not_found", f"the task {task} has no shadow in {root}; there are {there}")
        return shadow


class Workspaces:
    """Gives each session its workspace. One for a crib.

    `files: direct` of a mode is the disk itself, the other modes divert writes to changes that wait for review
    (`PendingWorkspace`). A shadow is a git worktree of the session's task: `arrange` only promises it, since sessions
    are made without waiting, and `ready` makes it before the first call.
    """

    def __init__(
        self, settings: Settings, policy: Policy, store: PendingStore, plan_mode: PlanMode, marks: FileMarks
    ) -> None:
        """`settings` name the folders of sessions that name none; `store` keeps what waits.

        `plan_mode` lets sessions plan whose mode wants it; `marks` are those of files with untrusted content.
        """
        self._roots = settings.workspace.roots
        self._policy = policy
        self._store = store
        self._marks = marks
        self._plan_mode = plan_mode
        self._programs = settings.environment.get("PATH", os.defpath)
        self._promised: WeakKeyDictionary[SessionState, Shadow] = WeakKeyDictionary()
        """Shadows of the sessions that were promised one; `ready` makes them."""
        self.has_promised = False
        """Whether a session was ever promised a shadow: else no call has to ask."""
        self._making = anyio.Lock()
        self._guard = guard_of(settings)
        self.shells = Shells(settings)
        self.changes = FileChanges(store, self._guard, marks)
        self.shadows = Shadows(self._roots, self._guard, self._programs, marks)

    def prepare(
        self, state: SessionState, options: SessionOptions, *, is_new: bool
    ) -> tuple[Workspace | None, Shadow | None]:
        """Return the workspace that the options give a session, and the shadow that they promise it; nothing changes.

        Raises `UsageError` for what is not there.
        """
        workspace, is_given = state.files.workspace, "workspace" in options
        if is_given or (is_new and self._roots):
            given = options.get("workspace", self._roots)
            cwd = Path(options["cwd"]).absolute() if "cwd" in options else state.files.cwd
            workspace = None if given is None else self._given(given, cwd)
        is_shadow = options.get("shadow", self._policy.mode(options.get("mode") or state.mode).shadow)
        if not is_shadow or (state in self._promised and not is_given):
            return workspace, None
        if workspace is None:
            raise UsageError("a shadow stands for a workspace, and this session has none: session(workspace=…)")
        task = options.get("task", state.files.task) or f"task-{secrets.token_hex(4)}"
        return workspace, shadow_of(workspace.root, task, self._programs)

    def sandbox_of(self, state: SessionState, taint: StoredTaint | None) -> Sandbox | None:
        """Return the sandbox of a session's commands; None if they may not run. `taint` marks what they write."""
        sandbox = self.shells.sandbox_of(state)
        if sandbox is None or taint is None:
            return sandbox
        mark_tainted = partial(self._policy.taint.mark_tainted_by, session=state)
        return MarkedSandbox(sandbox, self._marks, taint, state.key, mark_tainted, _is_read_before)

    def arrange(
        self,
        state: SessionState,
        options: SessionOptions,
        prepared: tuple[Workspace | None, Shadow | None],
        *,
        is_new: bool,
    ) -> None:
        """Set the session's mode, and what its tools see; `prepared` is that of `prepare`."""
        mode = self._policy.mode(options.get("mode") or state.mode)
        state.files.task = options.get("task", state.files.task)
        state.files.workspace, shadow = prepared
        if state.files.workspace is not None and state.files.cwd == Path():
            state.files.cwd = state.files.workspace.root
        if shadow is not None:
            state.files.task = shadow.task
        if is_new or mode.name != state.mode:
            end_planning(state)
            if mode.plan:
                self._plan_mode.begin(state)
        self._enter(state, mode)

    def promise(
        self, state: SessionState, options: SessionOptions, prepared: tuple[Workspace | None, Shadow | None]
    ) -> None:
        """Keep the shadow of `prepare` until the first call, which makes it; a workspace that is given ends another."""
        if "workspace" in options:
            self._promised.pop(state, None)
        if prepared[1] is not None:
            self._promised[state], self.has_promised = prepared[1], True

    async def ready(self, state: SessionState) -> None:
        """Make the shadow of a session that was promised one; nothing for every other. Raises `ToolFailure`."""
        shadow = self._promised.get(state)
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
        options: SessionOptions = {"mode": name}
        self.arrange(state, options, self.prepare(state, options, is_new=False), is_new=False)

    def _enter(self, state: SessionState, mode: Mode) -> None:
        state.mode = mode.name
        workspace = state.files.workspace
        if isinstance(workspace, DiskWorkspace | PendingWorkspace):
            state.files.workspace = self._diverted(workspace.tree, state, mode)
        needs = state.scope.provided - {_WORKSPACE}
        state.scope.provided = needs | {_WORKSPACE} if state.files.workspace is not None else needs

    def _diverted(self, tree: Tree, state: SessionState, mode: Mode) -> Workspace:
        """Return the workspace over these files in this mode."""
        if mode.files == "direct":
            return DiskWorkspace.over(tree)
        owner = f"task {state.files.task}" if state.files.task else f"session {state.key}"
        return PendingWorkspace(tree, self._store, principal=state.principal, owner=owner, files=mode.files)

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


def find(settings: Settings) -> tuple[Sandbox | None, str]:
    """Return the sandbox that a configuration gives on this machine, and why it is none. For a thread."""
    from ..sandbox.bubblewrap import CommandLimits  # slow to load: for the thread
    from ..sandbox.comparison import Comparison
    from ..sandbox.detection import find_sandbox  # needs POSIX

    shell = settings.shell
    bounds = CommandLimits(memory=shell.memory_mb << 20, file=shell.file_mb << 20, processes=shell.processes)
    brought = partial(is_from_commit, path=settings.environment.get("PATH", os.defpath))
    awaited = awaited_files(settings.directories.state / AWAITED)
    named = Reach(hosts=shell.hosts, private=shell.private_hosts)
    return find_sandbox(
        settings.environment,
        unsandboxed=shell.unsandboxed is not False,
        landlock=shell.landlock and not shell.unsandboxed,
        seatbelt=shell.seatbelt and not shell.unsandboxed,
        container=shell.container or "",
        network=shell.network is True or (named or False),
        outlet=_LazyOutlet(),
        bounds=bounds,
        comparison=Comparison(is_written=is_written, brought=brought, awaited=awaited),
    )


class _LazyOutlet:
    """The proxy of `net`. It is loaded with the first command that has a way out: most cribs have none."""

    async def serve(self, listener: SocketListener, reach: Reach, refused: Callable[[str], None]) -> None:
        """See `core.sandbox.Outlet`."""
        from ..net.proxy import Proxy  # slow to load: few cribs have sandboxes with egress

        await Proxy().serve(listener, reach, refused)


def _is_read_before(path: Path) -> bool:
    from ..sandbox.leftovers import is_taken_up  # loaded with the sandbox: most cribs run no command

    return is_taken_up(path.parts[:-1], path.name)


class Shells:
    """The sandbox of one crib; there is none before it was looked for.

    The search tries programs (bubblewrap, containers), so that a thread does it while the crib opens; `ready` waits for
    the thread, before the tools that need a sandbox are listed.
    """

    def __init__(self, settings: Settings) -> None:
        """Look for nothing yet."""
        self._settings = settings
        self._search: Thread | None = None
        self._sandbox: Sandbox | None = None

    def seek(self) -> None:
        """Begin to look, if there are tools that would use it."""
        if self._settings.sources.builtins:
            self._search = Thread(target=self._find, name="toolcrib-sandbox", daemon=True)
            self._search.start()

    async def ready(self) -> frozenset[str]:
        """Return the needs of tools that are met, once they are known."""
        if self._search is not None:
            await to_thread.run_sync(self._search.join)
        return self._provided()

    def arrange(self, state: SessionState) -> None:
        """Give a session what there is; without a sandbox only what the operator, or a person who is asked, accepts."""
        given = self._provided()
        if self._sandbox is not None and self._sandbox.kind == "none":
            is_accepted = self._settings.shell.unsandboxed or self._can_ask(state)
            given = given | {UNSANDBOXED} if is_accepted else frozenset[str]()
        state.scope.provided = state.scope.provided - {_SHELL, _LANGUAGE_SERVER, _SOCKETS, UNSANDBOXED} | given

    def sandbox_of(self, state: SessionState) -> Sandbox | None:
        """Return the sandbox of a session's commands; None if they may not run."""
        return self._sandbox if _SHELL in state.scope.provided else None

    def _can_ask(self, state: SessionState) -> bool:
        """Whether a question about a call of the session reaches a person; a job, and a program alone, have none."""
        approvals = self._settings.approvals
        return state.approvals.approver is not None or approvals.wait or approvals.webhook is not None

    def _provided(self) -> frozenset[str]:
        """Return the needs of tools that are met: language servers run in the sandbox, too."""
        if self._sandbox is None:
            return frozenset()
        servers = {_LANGUAGE_SERVER} if _has_servers(self._settings.tools.get("lsp")) else set[str]()
        return frozenset({_SHELL, *servers, *({_SOCKETS} if self._sandbox.kind not in _WITHOUT_SOCKETS else ())})

    def _find(self) -> None:
        self._sandbox, _ = find(self._settings)


def _has_servers(config: Any) -> bool:
    """Whether the configuration names a language server, under `tools.lsp`."""
    return isinstance(config, Mapping) and bool(cast("Mapping[str, Any]", config).get("servers"))
