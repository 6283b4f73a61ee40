"""Seven real MCP servers, and a call of every one of their tools with an effect that can be checked from outside."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig import node, npm_package_main

_NPM = "@modelcontextprotocol/server-"
PIXEL = bytes.fromhex("89504e470d0a1a0a")


def config(folder: Path) -> dict[str, Any]:
    """Return the `mcpServers` of the seven, with `folder` as the one place that they may touch."""
    scripts = Path(sys.executable).parent

    def npm(name: str, *arguments: str, **env: str) -> dict[str, Any]:
        return {"command": str(node()), "args": [str(npm_package_main(_NPM + name)), *arguments], "env": env}

    return {
        "mcpServers": {
            "everything": npm("everything", "stdio"),
            "filesystem": npm("filesystem", str(folder)),
            "memory": npm("memory", MEMORY_FILE_PATH=str(folder / "memory.jsonl")),
            "thinking": npm("sequential-thinking"),
            "git": {"command": str(scripts / "mcp-server-git")},
            "time": {"command": str(scripts / "mcp-server-time")},
            "fetch": {
                "command": str(scripts / "mcp-server-fetch"),
                "args": ["--ignore-robots-txt", "--allow-private-ips"],
            },
        }
    }


@dataclass(frozen=True, kw_only=True)
class Step:
    """One call, and what must be true afterwards."""

    tool: str
    """`server tool`, as the server calls it."""
    arguments: Mapping[str, Any]
    says: str = ""
    """A part of the result's text."""
    holds: Callable[[], bool] = lambda: True
    """The effect, looked at from outside."""


def prepare(space: Path) -> None:
    """Make a workspace: a git repository with one commit, and some files."""
    space.mkdir()
    (space / "a.txt").write_text("one\ntwo\n")
    (space / "b.txt").write_text("three\n")
    (space / "dot.png").write_bytes(PIXEL)
    _git(space, "init", "--quiet", "--initial-branch=main")
    _git(space, "config", "user.email", "test@example.com")
    _git(space, "config", "user.name", "Test")
    _git(space, "add", "a.txt")
    _git(space, "commit", "--quiet", "--message=first")


def steps(space: Path, memory: Path, page: str) -> list[Step]:
    """Return the calls for one workspace, in an order in which each finds what it needs. `page` is a loopback URL."""
    return [
        *_everything(),
        *_filesystem(space),
        *_memory(space.name, memory),
        *_git_steps(space),
        Step(
            tool="thinking sequentialthinking",
            arguments={"thought": "first", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
            says='"thoughtHistoryLength"',
        ),
        Step(tool="time get_current_time", arguments={"timezone": "Asia/Tokyo"}, says="+09:00"),
        Step(
            tool="time convert_time",
            arguments={"source_timezone": "Etc/UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
            says="21:00",
        ),
        Step(tool="fetch fetch", arguments={"url": page}, says="the page of the test"),
    ]


def _everything() -> list[Step]:
    def step(tool: str, says: str, /, **arguments: Any) -> Step:
        return Step(tool=f"everything {tool}", arguments=arguments, says=says)

    return [
        step("echo", "Echo: hé", message="hé"),
        step("get-annotated-message", "Operation failed", messageType="error"),
        step("get-env", "PATH"),
        step("get-resource-links", "4 resource links", count=4),
        step("get-resource-reference", "Resource 1"),
        step("get-structured-content", "temperature", location="Chicago"),
        step("get-sum", "5", a=2, b=3),
        step("get-tiny-image", "image"),
        step("gzip-file-as-resource", "", name="x.gz", data="data:text/plain;base64,aGVsbG8="),
        step("toggle-simulated-logging", "logging"),
        step("toggle-simulated-logging", "logging"),
        step("toggle-subscriber-updates", "simulated resource update"),
        step("toggle-subscriber-updates", "simulated resource update"),
        step("trigger-long-running-operation", "completed", duration=0.2, steps=2),
        step("simulate-research-query", "quiet", topic="quiet gateways"),
    ]


def _filesystem(space: Path) -> list[Step]:
    new, moved, folder = space / "new.txt", space / "moved.txt", space / "folder"

    def step(tool: str, says: str = "", holds: Callable[[], bool] = lambda: True, /, **arguments: Any) -> Step:
        return Step(tool=f"filesystem {tool}", arguments=arguments, says=says, holds=holds)

    path = {"path": str(space / "a.txt")}
    return [
        step("read_file", "one\ntwo", **path),
        step("read_text_file", "one", **path, head=1),
        step("read_media_file", "", path=str(space / "dot.png")),
        step("read_multiple_files", "three", paths=[path["path"], str(space / "b.txt")]),
        step("write_file", "", lambda: new.read_text() == "héllo\n", path=str(new), content="héllo\n"),
        step(
            "edit_file",
            "goodbye",
            lambda: new.read_text() == "goodbye\n",
            path=str(new),
            edits=[{"oldText": "héllo", "newText": "goodbye"}],
        ),
        step("create_directory", "", folder.is_dir, path=str(folder)),
        step("list_directory", "[DIR] folder", path=str(space)),
        step("list_directory_with_sizes", "new.txt", path=str(space), sortBy="size"),
        step("directory_tree", "new.txt", path=str(space), excludePatterns=[".git"]),
        step("move_file", "", moved.exists, source=str(new), destination=str(moved)),
        step("search_files", "moved.txt", path=str(space), pattern="*.txt"),
        step("get_file_info", "size", **path),
        step("list_allowed_directories", str(space.parent)),
    ]


def _memory(name: str, file: Path) -> list[Step]:
    one, two = f"{name}-one", f"{name}-two"

    def step(tool: str, says: str = "", holds: Callable[[], bool] = lambda: True, /, **arguments: Any) -> Step:
        return Step(tool=f"memory {tool}", arguments=arguments, says=says, holds=holds)

    def stored(text: str) -> Callable[[], bool]:
        return lambda: text in file.read_text()

    entities = [{"name": entity, "entityType": "thing", "observations": ["made"]} for entity in (one, two)]
    relation = {"from": one, "to": two, "relationType": "knows"}
    return [
        step("create_entities", one, stored(f'"name":"{one}"'), entities=entities),
        step("create_relations", "knows", stored(f'"from":"{one}"'), relations=[relation]),
        step(
            "add_observations",
            "seen",
            stored("seen twice"),
            observations=[{"entityName": one, "contents": ["seen twice"]}],
        ),
        step("read_graph", two),
        step("search_nodes", one, query=one),
        step("open_nodes", two, names=[two]),
        step("delete_observations", "", deletions=[{"entityName": one, "observations": ["seen twice"]}]),
        step("delete_relations", "", lambda: not stored(f'"from":"{one}"')(), relations=[relation]),
        step("delete_entities", "", lambda: not stored(f'"name":"{one}"')(), entityNames=[one, two]),
    ]


def _git_steps(space: Path) -> list[Step]:
    def step(tool: str, says: str = "", holds: Callable[[], bool] = lambda: True, /, **arguments: Any) -> Step:
        return Step(tool=f"git git_{tool}", arguments={"repo_path": str(space), **arguments}, says=says, holds=holds)

    def log() -> str:
        return _git(space, "log", "--format=%s")

    return [
        step("status", "b.txt"),
        step("add", "", lambda: "A  b.txt" in _git(space, "status", "--short"), files=["b.txt"]),
        step("diff_staged", "+three"),
        step("reset", "", lambda: "?? b.txt" in _git(space, "status", "--short")),
        step("add", "", files=["b.txt"]),
        step("commit", "", lambda: log().startswith("second\n"), message="second"),
        step("log", "second", max_count=2),
        step("show", "three", revision="HEAD"),
        step("create_branch", "", lambda: "side" in _git(space, "branch"), branch_name="side"),
        step("checkout", "", lambda: "* side" in _git(space, "branch"), branch_name="side"),
        step("branch", "side", branch_type="local"),
        step("diff", "", target="main"),
        step("diff_unstaged", ""),
    ]


def _git(space: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", space, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def write_config(folder: Path) -> Path:
    """Write the configuration beside `folder` and return its path."""
    file = folder.parent / "seven.yaml"
    ours = {"builtins": False, "untrusted": {"ask": False}}  # clients that cannot be asked, servers that we vouch for
    file.write_text(json.dumps({**config(folder), **ours}))
    return file
