"""Nothing outside of a workspace is reached (security.md T16): names, links, swaps, pipes, devices."""

from __future__ import annotations

import errno
import itertools
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from rig.swapping import swapping
from toolcrib.errors import ToolFailure
from toolcrib.workspace.batch import Change, apply, is_written
from toolcrib.workspace.disk import DiskWorkspace
from toolcrib.workspace.paths import Place
from toolcrib.workspace.safe_paths import open_beneath

SECRET = b"outside: nobody may read this"
READS = 3_000

UPS = ("..", "../..", "../../../../../../../..", "./..", "a/..", "a/../..", "a/./../..", "..//..", ".//..//")
TARGETS = ("secret.txt", "outside/secret.txt", "etc/passwd", "proc/self/root/etc/passwd", "tmp", ".ssh/id_rsa")
ENCODINGS: tuple[Callable[[str], str], ...] = (
    lambda path: path,
    lambda path: path.replace("..", "%2e%2e"),
    lambda path: path.replace("/", "%2f"),
    lambda path: path.replace("/", "\\"),
    lambda path: path.replace("..", "．．"),
    lambda path: path.replace("/", "∕"),
    lambda path: f"/{path}",
    lambda path: f"file://{path}",
    lambda path: f"a/{path}",
    lambda path: f"{path}\0.txt",
    lambda path: f" {path}",
    lambda path: path.replace("..", ".. "),
)


def traversals(outside: Path) -> list[str]:
    """Return ways to write a path that leads outside, or looks as if it did."""
    made = {encode(f"{up}/{target}") for up, target, encode in itertools.product(UPS, TARGETS, ENCODINGS)}
    absolute = {
        f"{prefix}{outside}/secret.txt" for prefix in ("", "/", "//", "/.", "/proc/self/root", "/proc/self/cwd/..")
    }
    return sorted(
        made | absolute | {"~", "~/secret.txt", "", ".", "/", "..", "\0", "\x1b[2J", "a" * 5000, "/".join("a" * 3000)}
    )


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_bytes(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "inside.txt").write_bytes(b"inside")
    return folder


@pytest.fixture
def workspace(root: Path) -> DiskWorkspace:
    return DiskWorkspace(root)


async def refusal(work: Awaitable[Any]) -> str:
    with pytest.raises(ToolFailure) as failure:
        await work
    return failure.value.code


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
async def test_no_way_to_write_a_path_reads_or_writes_outside(
    workspace: DiskWorkspace, root: Path, outside: Path
) -> None:
    corpus = traversals(outside)
    assert len(corpus) >= 300
    before = contents(outside)
    for path in corpus:
        with pytest.raises(ToolFailure):
            await workspace.read(path)
    for path in corpus:
        try:
            await workspace.write(path, b"written")
        except ToolFailure as failure:
            assert failure.code in ("denied", "invalid_arguments", "not_found", "tool_error"), path
    assert contents(outside) == before
    assert {entry.name for entry in root.parent.iterdir()} == {"root", "outside"}


async def test_a_sibling_whose_name_begins_like_the_root_is_outside(root: Path) -> None:
    (root.parent / "root-2").mkdir()
    (root.parent / "root-2" / "secret.txt").write_bytes(SECRET)
    assert await refusal(DiskWorkspace(root).read(f"{root}-2/secret.txt")) == "denied"


async def test_an_absolute_path_inside_is_the_file(workspace: DiskWorkspace, root: Path) -> None:
    assert await workspace.read(f"{root}/a/inside.txt") == b"inside"


async def test_a_root_that_was_declared_through_a_link_is_known_by_both_names(root: Path) -> None:
    (root.parent / "link").symlink_to(root)
    workspace = DiskWorkspace(root.parent / "link")
    for path in ("a/inside.txt", f"{root}/a/inside.txt", f"{root.parent}/link/a/inside.txt"):
        assert await workspace.read(path) == b"inside"


@pytest.mark.parametrize("target", ["outside", "outside/secret.txt", "root/a", "/proc/self/root", "nowhere"])
async def test_no_link_is_followed_for_anything(workspace: DiskWorkspace, root: Path, target: str) -> None:
    (root / "link").symlink_to(Path(target) if target.startswith("/") else root.parent / target)
    before = contents(root.parent)
    for path in ("link", "link/secret.txt", "link/inside.txt", "link/etc/passwd"):
        assert await refusal(workspace.read(path)) in ("denied", "not_found", "tool_error")
    for path in ("link", "link/new.txt", "link/secret.txt"):
        assert await refusal(workspace.write(path, b"x")) == "denied"
        assert await refusal(workspace.write_all({"a/one.txt": b"1", path: b"x"})) == "denied"
    assert await refusal(workspace.list("link")) == "denied"
    assert await refusal(workspace.walk("link")) == "denied"
    assert await refusal(workspace.make_folder("link/new")) == "denied"
    assert await refusal(workspace.move("a/inside.txt", "link/inside.txt")) == "denied"
    assert [entry.path for entry in await workspace.walk()] == ["a/inside.txt"]
    assert contents(root.parent) == before


async def test_removing_a_link_removes_the_link(workspace: DiskWorkspace, root: Path, outside: Path) -> None:
    (root / "a" / "link").symlink_to(outside)
    await workspace.remove("a", recursive=True)
    assert (contents(outside), list(root.iterdir())) == ({"secret.txt": SECRET}, [])


@pytest.mark.long
@pytest.mark.slow
async def test_no_read_leaks_while_a_folder_is_swapped_for_a_link(
    workspace: DiskWorkspace, root: Path, outside: Path
) -> None:
    (root / "a" / "secret.txt").write_bytes(b"inside")
    seen: set[bytes] = set()
    with swapping(root / "a", outside):
        for _ in range(READS):
            try:
                seen.add(await workspace.read("a/secret.txt"))
            except ToolFailure:
                seen.add(b"refused")
    assert seen <= {b"inside", b"refused"}


@pytest.mark.slow
async def test_no_write_gets_out_while_a_folder_is_swapped_for_a_link(
    workspace: DiskWorkspace, root: Path, outside: Path
) -> None:
    with swapping(root / "a", outside):
        for number in range(300):
            try:
                await workspace.write_all({"a/new.txt": b"%d" % number, f"a/deep/{number}.txt": b"x"})
                await workspace.remove("a/deep", recursive=True)
            except ToolFailure:
                continue
    assert contents(outside) == {"secret.txt": SECRET}


@pytest.mark.parametrize("in_kernel", [True, False])
def test_opening_beneath_follows_nothing_whoever_resolves(root: Path, outside: Path, in_kernel: bool) -> None:
    (root / "link").symlink_to(outside)
    (root / "a" / "secret.txt").write_bytes(b"inside")
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY)

    def opens(*steps: str) -> bytes | None:
        try:
            descriptor = open_beneath(top, steps, os.O_RDONLY, in_kernel=in_kernel)
        except OSError as error:
            assert error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EXDEV)
            return None
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    try:
        assert opens("a", "secret.txt") == b"inside"
        assert [opens("link", "secret.txt"), opens("a", "..", "x"), opens(".."), opens("a/../../outside")] == [None] * 4
        with swapping(root / "a", outside):
            assert {opens("a", "secret.txt") for _ in range(READS)} <= {b"inside", None}
    finally:
        os.close(top)


async def test_what_is_no_regular_file_is_refused_at_once(workspace: DiskWorkspace, root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(root / "socket"))
        with anyio.fail_after(PATIENCE):
            for name in ("pipe", "socket"):
                assert await refusal(workspace.read(name)) == "denied"
                assert await refusal(workspace.write(name, b"x")) == "denied"
    assert {entry.path: entry.kind for entry in await workspace.list()} == {
        "a": "folder",
        "pipe": "other",
        "socket": "other",
    }


async def test_a_device_in_a_declared_folder_is_refused() -> None:
    assert await refusal(DiskWorkspace("/dev").read("zero")) == "denied"


async def test_a_file_with_a_second_name_is_refused_outside_of_trusted_folders(
    workspace: DiskWorkspace, root: Path, outside: Path
) -> None:
    (root / "node_modules" / "pkg").mkdir(parents=True)
    for place in (root / "hard.txt", root / "node_modules" / "pkg" / "hard.txt"):
        os.link(outside / "secret.txt", place)
    assert await refusal(workspace.read("hard.txt")) == "denied"
    assert await refusal(workspace.write("hard.txt", b"x")) == "denied"
    assert await workspace.read("node_modules/pkg/hard.txt") == SECRET
    await workspace.write("node_modules/pkg/hard.txt", b"mine")
    assert (outside / "secret.txt").read_bytes() == SECRET


GUARDED = [
    *(".env", ".ENV", "sub/.env.production", ".Env.local", "key.pem", "KEY.PEM", "deploy.key", ".ssh/config"),
    *("id_rsa", "id_ed25519", ".aws/credentials", "credentials.json", ".netrc", ".npmrc", ".docker/config.json"),
    *("secrets.yaml", "cert.p12", ".git-credentials", ".env.", "．env"),
]


@pytest.mark.parametrize("path", GUARDED)
async def test_what_holds_secrets_is_neither_read_nor_written_nor_walked(path: str, root: Path) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(SECRET)
    workspace = DiskWorkspace(root)
    codes = [
        await refusal(work) for work in (workspace.read(path), workspace.write(path, b"x"), workspace.remove(path))
    ]
    assert codes == ["denied"] * 3
    assert await refusal(workspace.move(path, "open.txt")) == "denied"
    assert [entry.path for entry in await workspace.walk(hidden=True)] == ["a/inside.txt"]
    with pytest.raises(ToolFailure):
        workspace.local(path)


@pytest.mark.parametrize("path", [".env.example", "id_rsa.pub", "monkey.txt", "environment", "credentials_test.py"])
async def test_what_only_looks_like_a_secret_is_a_file(workspace: DiskWorkspace, path: str) -> None:
    await workspace.write(path, b"x")
    assert await workspace.read(path) == b"x"


@pytest.mark.parametrize(
    "path",
    [
        *(".git/hooks/post-checkout", ".GIT/config", "sub/.git/config", ".git", ".toolcrib/config.yaml", ".bashrc"),
        *(".vscode/tasks.json", ".mcp.json", ".claude/settings.json", ".cursor/mcp.json", ".gitmodules"),
        *(".codex/config.toml", ".gemini/settings.json", "opencode.jsonc", ".amp/settings.json", ".cursor/hooks.json"),
        *(".gi\u200ct/config", ".\u2060Git/config", "GIT~1/config", ".Mcp.json", ".claude./settings.json"),
    ],
)
async def test_what_runs_by_itself_or_says_what_may_run_is_never_written(workspace: DiskWorkspace, path: str) -> None:
    assert await refusal(workspace.write(path, b"x")) == "denied"
    assert await refusal(workspace.make_folder(path)) == "denied"
    assert await refusal(workspace.move("a/inside.txt", path)) == "denied"


async def test_a_folder_that_holds_something_protected_is_neither_removed_nor_moved(
    workspace: DiskWorkspace, root: Path
) -> None:
    (root / "a" / ".git").mkdir()
    (root / "a" / ".git" / "config").write_bytes(b"x")
    assert await refusal(workspace.remove("a", recursive=True)) == "denied"
    assert await refusal(workspace.move("a", "b")) == "denied"
    assert (root / "a" / ".git" / "config").read_bytes() == b"x"


def _names(entries: Sequence[Any]) -> list[str]:
    return [entry.path for entry in entries]


async def test_a_name_that_is_no_text_is_left_out(workspace: DiskWorkspace, root: Path) -> None:
    for name in (b"\xff.txt", b"line\nbreak.txt"):
        (root / os.fsdecode(name)).write_bytes(b"x")
    assert (_names(await workspace.list()), _names(await workspace.walk())) == (["a"], ["a/inside.txt"])


def _changed_at_once(root: Path, change: Callable[[Path], None]) -> list[bool]:
    """Let another thread change each file as soon as it appears; return whether each still counts as a tool's own."""
    found: list[bool] = []
    for number in range(30):
        place = Place(root, (f"{change.__name__} {number}",), "file")
        other = Thread(target=_when_there, args=(place.path, change))
        other.start()
        apply([Change(place=place, content=b"tool")])
        other.join()
        found.append(is_written(place.path))
    return found


def _when_there(path: Path, change: Callable[[Path], None]) -> None:
    while not path.exists():
        pass
    change(path)


def test_what_a_command_changes_while_a_tool_writes_it_does_not_count_as_the_tools_own(root: Path) -> None:
    """In place, in its mode, or by another file: each comes before the tool has returned."""

    def overwrite(path: Path) -> None:
        with path.open("r+b") as file:
            file.write(b"evil")

    def allow_execution(path: Path) -> None:
        path.chmod(0o755)

    def put_another(path: Path) -> None:
        path.unlink()
        path.write_bytes(b"evil")

    def leave(path: Path) -> None:
        path.read_bytes()

    found = {
        change.__name__: set(_changed_at_once(root, change)) for change in (overwrite, allow_execution, put_another)
    }

    assert found == {"overwrite": {False}, "allow_execution": {False}, "put_another": {False}}
    assert _changed_at_once(root, leave) == [True] * 30
