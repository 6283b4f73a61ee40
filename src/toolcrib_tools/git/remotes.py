"""Remotes: what git tells another machine, and with whose credentials.

The repository's configuration has many words about connections (helpers, proxies, certificates, programs of the other
side), and some of them for single addresses, which nothing overrides. So no connection is made in the repository: a
bare one of our own, empty but for its refs, shares its objects and makes it. Only the address comes from the
repository, and only by a transport that is known.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyio import to_thread

from toolcrib.plugin import Context, ToolFailure, harmless_git

from .._workspace.place import workspace_of
from .places import PRIVATE, Place, file_said, place_at, reach_of, token_for
from .programs import Done, Program, run
from .repository import Repository

__all__ = ["Remote", "remote_of"]

_NAME: Final = re.compile(r"[\w][\w./-]*")
_SECONDS: Final = 300.0
_CREDENTIALS: Final = (
    "the operator names credentials in the config: tools: {git: {tokens: {HOST: …}, ssh_key: …, known_hosts: …}}"
)
_TOKEN: Final = "TOOLCRIB_GIT_AUTHORIZATION"
"""The variable that git takes the header from: a command line can be read by others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """One remote of a repository."""

    repository: Repository
    name: str
    url: str
    place: Place | None
    """The server; None for a folder of the workspace."""

    async def fetch(self, branch: str) -> str:
        """Fetch a branch; return its commit. The remote-tracking ref is moved."""
        ours = "refs/fetched"
        async with self._bare() as bare:
            done = await self._run(bare, "fetch", "--quiet", "--no-tags", self.url, f"+refs/heads/{branch}:{ours}")
            if done.status:
                raise _failure("fetch", self.name, done)
            commit = (await self._run(bare, "rev-parse", "--verify", ours)).text
        await self._follow(branch, commit)
        return commit

    async def push(self, branch: str, commit: str) -> str:
        """Push a commit as a branch, never by force; return what the other side said."""
        async with self._bare() as bare:
            done = await self._run(bare, "push", "--porcelain", self.url, f"{commit}:refs/heads/{branch}")
        if done.status:
            raise _failure("push", self.name, done)
        await self._follow(branch, commit)
        return done.said

    async def _follow(self, branch: str, commit: str) -> None:
        await self.repository.ask("update-ref", f"refs/remotes/{self.name}/{branch}", commit)

    @asynccontextmanager
    async def _bare(self) -> AsyncGenerator[Path]:
        """Make a bare repository that has the commits of ours and nothing of its configuration."""
        refs = await self.repository.ask(
            "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/remotes"
        )
        folder = self.repository.ctx.lent.folder("git")
        bare = Path(await to_thread.run_sync(lambda: tempfile.mkdtemp(dir=folder)))
        try:
            await to_thread.run_sync(_fill, bare, refs, await self._shallow())
            yield bare
        finally:
            await to_thread.run_sync(lambda: shutil.rmtree(bare, ignore_errors=True))

    async def _shallow(self) -> bytes:
        path = Path(await self.repository.ask("rev-parse", "--git-path", "shallow"))
        path = self.repository.tree / path
        return await to_thread.run_sync(lambda: path.read_bytes() if path.is_file() else b"")

    async def _run(self, bare: Path, *arguments: str) -> Done:
        ctx = self.repository.ctx
        objects = self.repository.tree / await self.repository.ask("rev-parse", "--git-path", "objects")
        given = _connection(ctx, self.place)
        environment = {**harmless_git(), "GIT_DIR": str(bare), "GIT_OBJECT_DIRECTORY": str(objects)}
        program = Program(
            argv=("git", "--no-pager", *given.words, *arguments),
            cwd=bare,
            folders=(bare, *workspace_of(ctx).roots),
            environment={**environment, **given.environment},
            readable=given.readable,
            network=reach_of(ctx, self.place) if self.place else False,
            trusted=self.place is not None,  # the hooks of a remote in the workspace run
            seconds=_SECONDS,
        )
        return await run(ctx, program)


async def remote_of(repository: Repository, name: str) -> Remote:
    """Return a remote of a repository. Raises `ToolFailure` for one that there is not, or of a transport not known."""
    if not _NAME.fullmatch(name):
        raise ToolFailure("invalid_arguments", f"{name!r} is no name of a remote")
    url = (await repository.run("config", "--get", f"remote.{name}.url")).text
    if not url:
        there = ", ".join((await repository.ask("remote")).split()) or "none"
        raise ToolFailure("not_found", f"there is no remote {name!r}", hint=f"remotes: {there}")
    place = place_at(url)
    if place is None:
        _check_folder(repository.ctx, url)
    return Remote(repository=repository, name=name, url=url, place=place)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connection:
    words: tuple[str, ...] = ()
    environment: Mapping[str, str]
    readable: tuple[Path, ...] = ()


def _connection(ctx: Context, place: Place | None) -> _Connection:
    """Return what lets git connect: the transport, and the credentials that were named for this server."""
    scheme = place.scheme if place else "file"
    words = ("-c", f"protocol.{scheme}.allow=always", "-c", "http.followRedirects=false")
    if place is None:
        return _Connection(words=words, environment={})
    if scheme == "ssh":
        return _over_ssh(ctx, words)
    authority = file_said(ctx, "ca_file")
    environment = {"NO_PROXY": "", "no_proxy": ""}  # nothing that it wants to reach is inside of the sandbox
    environment |= {"GIT_SSL_CAINFO": str(authority)} if authority else {}
    readable = (authority,) if authority else ()
    if token := token_for(ctx, place):
        basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        environment[_TOKEN] = f"Authorization: Basic {basic}"
        words = (*words, f"--config-env=http.extraHeader={_TOKEN}")
    return _Connection(words=words, environment=environment, readable=readable)


def _over_ssh(ctx: Context, words: tuple[str, ...]) -> _Connection:
    """Return what ssh is to go by: one key and the hosts that were named; no agent, and nothing of the user's own."""
    key, known = (file_said(ctx, name) for name in ("ssh_key", "known_hosts"))
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": f'"{known}"' if known else os.devnull,
        "GlobalKnownHostsFile": os.devnull,
        "PreferredAuthentications": "publickey",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "IdentityFile": f'"{key}"' if key else "none",
        "ClearAllForwardings": "yes",
    }
    said = " ".join(f"-o '{name}={value}'" for name, value in options.items())
    if ctx.sandbox is not None and ctx.sandbox.kind == "bubblewrap":
        said += ' -o ProxyCommand="$TOOLCRIB_PROXY_COMMAND %h %p"'
    readable = tuple(path for path in (key, known) if path is not None)
    return _Connection(words=words, environment={"GIT_SSH_COMMAND": f"ssh -F {os.devnull} {said}"}, readable=readable)


def _check_folder(ctx: Context, url: str) -> None:
    """A folder is a remote only inside the workspace, and in a sandbox: its hooks run."""
    path = Path(url.removeprefix("file://"))
    if not path.is_absolute() or "::" in url:
        raise ToolFailure("denied", f"the remote {url} is of a kind that is not used: https and ssh are")
    roots = workspace_of(ctx).roots
    if ctx.sandbox is None or not any(path.resolve().is_relative_to(root) for root in roots):
        raise ToolFailure("denied", f"the remote {url} is a folder outside of the workspace, or there is no sandbox")


def _fill(bare: Path, refs: str, shallow: bytes) -> None:
    """Make what git takes for a repository, without asking it: no template, no configuration of anybody."""
    for name in ("objects", "refs"):
        (bare / name).mkdir()
    (bare / "HEAD").write_text("ref: refs/heads/none\n", encoding="utf-8")
    (bare / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n", encoding="utf-8")
    (bare / "packed-refs").write_text(f"{refs}\n" if refs else "", encoding="utf-8")
    if shallow:
        (bare / "shallow").write_bytes(shallow)


def _failure(verb: str, name: str, done: Done) -> ToolFailure:
    said = re.sub(r"(?<=://)[^@/\s]+@", "", done.stderr.decode("utf-8", "replace").strip() or done.said)
    if verb == "push" and re.search(r"non-fast-forward|fetch first", f"{said}{done.text}"):
        return ToolFailure(
            "conflict", f"{name} has commits that are not here", hint="git_pull brings them; then push again"
        )
    if done.refused:
        return ToolFailure("denied", f"git {verb} with {name} was refused: {done.refused[0]}", hint=PRIVATE)
    is_refused = re.search(r"could not read Username|Authentication failed|Permission denied|Host key", said)
    hint = _CREDENTIALS if is_refused else ""
    return ToolFailure("tool_error", f"git {verb} with {name} failed: {said[-1000:]}", hint=hint)
