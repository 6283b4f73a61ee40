"""fs: files of the session's folder, and of no other."""

from __future__ import annotations

import re
from pathlib import Path

from toolcrib import ToolFailure
from toolcrib.core.workspace import Workspace
from toolcrib.sources.yaml.run_code import ToolContext
from toolcrib.workspace.disk import DiskWorkspace

__all__ = ["edit_file", "files_of", "inside", "list_directory", "read_file", "text_files", "write_file"]

_SENSITIVE = re.compile(r"(^|/)(\.env(\.|$)|id_[a-z0-9]+$|credentials|.*\.(pem|key)$)")
_OWN = (".sidecar/settings.json", ".sidecar/cache", ".sidecar/logs", ".git")


def inside(context: ToolContext, path: str, *, write: bool = False) -> Path:
    """Return the file that `path` means. Raises `ToolFailure` for what is outside, odd or not for tools."""
    parts = path.split("/")
    if not path.strip() or any(ord(character) < 32 for character in path):
        raise ToolFailure("tool_error", f"{path!r} is no path")
    if len(path) > 80 or any(len(part) > 60 for part in parts):
        raise ToolFailure("tool_error", f"{path[:80]}… is too long for a path")
    if path.startswith(("/", "~")) or ".." in parts:
        raise ToolFailure("tool_error", f"{path} is outside of the workspace", hint="use a path relative to it")
    if _SENSITIVE.search(path):
        raise ToolFailure("tool_error", f"{path} may hold secrets; it is not read or written")
    if write and path.startswith(_OWN):
        raise ToolFailure("tool_error", f"{path} is kept by the assistant itself")
    return context.call.path(path)


def text_files(folder: Path) -> list[Path]:
    """Return the files below `folder`, or `folder` itself when it is one, without hidden ones."""
    if folder.is_file():
        return [folder]
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def files_of(context: ToolContext) -> Workspace:
    """Return the session's files: what waits for review is among them, and is in no file yet."""
    return context.call.workspace or DiskWorkspace(context.call.cwd)


async def read_file(path: str, context: ToolContext, mode: str = "full") -> str:
    inside(context, path)
    text = await _text(context, path)
    lines = text.splitlines()
    if mode == "compact":
        return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith(("#", "//")))
    if mode == "outline":
        named = re.compile(r"\s*(async def|def|class|function|interface|export)\b")
        return "\n".join(f"{number}: {line.strip()}" for number, line in enumerate(lines, 1) if named.match(line))
    return text


async def write_file(path: str, content: str, context: ToolContext) -> str:
    inside(context, path, write=True)
    await files_of(context).write(path, content.encode())
    return f"File written: {path} ({len(content)} characters)"


async def edit_file(path: str, search: str, replace: str, context: ToolContext) -> str:
    inside(context, path, write=True)
    text = await _text(context, path)
    found = text.count(search) if search else 0
    if found != 1:
        near = next((line for line in text.splitlines() if search.strip()[:12] and search.strip()[:12] in line), "")
        hint = f"nearest line: {near.strip()}" if near and not found else "read the file first"
        raise ToolFailure("tool_error", f"the text is {found} times in {path}, once is needed", hint=hint)
    await files_of(context).write(path, text.replace(search, replace).encode())
    return f"File edited: {path}"


async def list_directory(context: ToolContext, path: str = ".") -> str:
    inside(context, path)
    found = await files_of(context).stat(path)
    if found is None or found.kind != "folder":
        raise ToolFailure("tool_error", f"there is no folder {path}")
    entries = sorted(await files_of(context).list(path), key=lambda entry: (entry.kind == "file", entry.path))
    return "\n".join(Path(entry.path).name + ("/" if entry.kind == "folder" else "") for entry in entries)


async def _text(context: ToolContext, path: str) -> str:
    found = await files_of(context).stat(path)
    if found is None or found.kind != "file":
        raise ToolFailure("tool_error", f"there is no file {path}")
    return (await files_of(context).read(path)).decode()
