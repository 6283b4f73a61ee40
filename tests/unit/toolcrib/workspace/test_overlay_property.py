"""Whatever is done to a workspace, it shows what a dict would hold: on the disk, and with changes that wait."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from toolcrib.core.workspace import Workspace
from toolcrib.errors import ToolFailure
from toolcrib.store.store import Store
from toolcrib.workspace.disk import DiskWorkspace
from toolcrib.workspace.pending_changes import PendingWorkspace
from toolcrib.workspace.review import accept, reject
from unit.toolcrib.workspace.model import Model, Refused

pytestmark = pytest.mark.slow

T = TypeVar("T")

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS = st.sampled_from([b"", b"1\n", b"2\n", b"\xff\x00"])
TREES = st.dictionaries(PATHS, CONTENTS, max_size=4)


def model_of(tree: Mapping[str, bytes]) -> Model:
    model = Model()
    for path, content in tree.items():
        try:
            model.write(path, content)
        except Refused:
            continue
    return model


class Machine(RuleBasedStateMachine):
    """One workspace beside one model."""

    workspace: Workspace
    model: Model

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.root = Path(tempfile.mkdtemp(prefix="toolcrib-test-"))
        self.model = Model()

    def begin(self) -> None:
        self.workspace = DiskWorkspace(self.root)

    @initialize(tree=TREES)
    def start(self, tree: Mapping[str, bytes]) -> None:
        self.model = model_of(tree)
        for path, content in self.model.files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_bytes(content)
        self.begin()

    def teardown(self) -> None:
        self.runner.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def run(self, awaitable: Awaitable[T]) -> T:
        async def wait() -> T:
            return await awaitable

        return self.runner.run(wait())

    def both(self, work: Callable[[], Awaitable[Any]], of_model: Callable[[], None]) -> None:
        """Do the same to both; what one refuses, the other refuses."""
        before = self.model.copy()
        try:
            of_model()
        except Refused:
            self.model = before
            with pytest.raises(ToolFailure):
                self.run(work())
        else:
            self.run(work())

    @rule(path=PATHS, content=CONTENTS)
    def write(self, path: str, content: bytes) -> None:
        self.both(lambda: self.workspace.write(path, content), lambda: self.model.write(path, content))

    @rule(contents=st.dictionaries(PATHS, st.none() | CONTENTS, min_size=2, max_size=3))
    def write_all(self, contents: dict[str, bytes | None]) -> None:
        self.both(lambda: self.workspace.write_all(contents), lambda: self.model.write_all(contents))

    @rule(path=PATHS, recursive=st.booleans())
    def remove(self, path: str, recursive: bool) -> None:
        self.both(lambda: self.workspace.remove(path, recursive=recursive), lambda: self.model.remove(path, recursive))

    @rule(old=PATHS, new=PATHS)
    def move(self, old: str, new: str) -> None:
        self.both(lambda: self.workspace.move(old, new), lambda: self.model.move(old, new))

    @rule(path=PATHS)
    def make_folder(self, path: str) -> None:
        self.both(lambda: self.workspace.make_folder(path), lambda: self.model.make_folder(path))

    @invariant()
    def shows_what_the_model_holds(self) -> None:
        if hasattr(self, "workspace"):
            self.run(self.compare())

    async def compare(self) -> None:
        walked = await self.workspace.walk()
        assert [entry.path for entry in walked] == sorted(self.model.files)
        for path, content in self.model.files.items():
            assert await self.workspace.read(path) == content
        assert await self.workspace.read_many(list(self.model.files)) == list(self.model.files.values())
        for folder in ("", *self.model.folders):
            listed = await self.workspace.list(folder or ".")
            assert {Path(entry.path).name for entry in listed} == self.model.children(folder)
            found = await self.workspace.stat(folder or ".")
            assert found is not None and found.kind == "folder"
        assert await self.workspace.stat("never/there") is None


class PendingMachine(Machine):
    """The same with changes that wait; the disk stays as it was until they are accepted."""

    pending: PendingWorkspace
    disk: Model

    def begin(self) -> None:
        async def opened() -> Store:
            return await Store.open(None).__aenter__()

        self.store = self.runner.run(opened())
        tree = DiskWorkspace(self.root).tree
        self.pending = PendingWorkspace(tree, self.store.pending, principal="p", owner="session s", files="audit")
        self.workspace = self.pending
        self.disk = self.model.copy()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.close())
        super().teardown()

    def on_disk(self) -> Model:
        inside = list(self.root.rglob("*"))
        return Model(
            {str(path.relative_to(self.root)): path.read_bytes() for path in inside if path.is_file()},
            {str(path.relative_to(self.root)) for path in inside if path.is_dir()},
        )

    @invariant()
    def leaves_the_disk_alone(self) -> None:
        if hasattr(self, "disk"):
            assert self.on_disk() == self.disk

    @invariant()
    def tells_programs_what_they_do_not_see(self) -> None:
        if hasattr(self, "disk"):
            told = dict(self.run(self.pending.overlay()))
            seen = {path: content for path, content in self.disk.files.items() if path not in told}
            assert seen | {path: content for path, content in told.items() if content is not None} == self.model.files

    @rule()
    def accept_all(self) -> None:
        self.run(accept(self.pending.tree, self.store.pending, self.pending.key))
        self.disk = self.model.copy()

    @rule()
    def reject_all(self) -> None:
        self.run(reject(self.pending.tree, self.store.pending, self.pending.key))
        self.model = self.disk.copy()

    @rule(data=st.data())
    def accept_one(self, data: st.DataObject) -> None:
        waiting = self.run(self.pending.waiting()).changes
        if waiting:
            path = data.draw(st.sampled_from([change.path for change in waiting]))
            self.run(accept(self.pending.tree, self.store.pending, self.pending.key, [path]))
            self.disk = self.on_disk()


TestDisk = Machine.TestCase
TestDisk.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
TestPending = PendingMachine.TestCase
TestPending.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)
