"""Git remotes: addresses and configured credentials; push, pull and pull requests."""

from __future__ import annotations

import base64
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Annotated, Any, Final, Literal

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace
from pydantic import Field

from toolcrib.plugin import Context, Reach, ToolFailure, as_list, as_mapping, harmless_git

from .._extras import lacks_any, lacks_program, lacks_setting
from .._workspace.place import workspace_of
from .commits import merge
from .repository import GitOutput, Program, Repository, checked_name, git_tool, repository_at, run

PRIVATE: Final = (
    "the operator names a server that is not at a public address in the config:"
    " tools: {git: {private_hosts: [HOST:PORT]}}"
)
_HOST: Final = r"(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])"
_URL: Final = re.compile(
    rf"(?P<scheme>https|ssh)://(?:[^@/\s]*@)?{_HOST}(?::(?P<port>[0-9]{{1,5}}))?/(?P<path>[^\x00-\x20]+)"
)
_SCP: Final = re.compile(rf"(?:[\w.-]+@)?{_HOST}:(?!//)(?P<path>[^\x00-\x20:]+)")
_SPECIAL: Final = frozenset("'\"%$\\")
"""Characters with a meaning to ssh in a file name."""
_PORTS: Final[Mapping[str, int]] = {"https": 443, "ssh": 22}

_NAME: Final = re.compile(r"[\w][\w./-]*")
_SECONDS: Final = 300.0
_CREDENTIALS: Final = (
    "the operator names credentials in the config: tools: {git: {tokens: {HOST: …}, ssh_key: …, known_hosts: …}}"
)
_TOKEN: Final = "TOOLCRIB_GIT_AUTHORIZATION"
"""The variable that git takes the header from: a command line can be read by others."""

_PUBLISH_SECONDS: Final = 330
"""Time limit of a call: fetching a large repository is slow."""
_remote_tool = partial(git_tool, kind="destructive", open_world=True, locks=["repo"], timeout=_PUBLISH_SECONDS)
_OF_GITHUB: Final = ("api.github.com:443", "uploads.github.com:443")


class RemoteAddress(Struct, frozen=True, kw_only=True):
    """A repository on a server."""

    scheme: Literal["https", "ssh"]
    host: str
    """Host in lower case, an IPv6 address in brackets."""
    port: int
    path: str
    """Path without `.git`."""

    @property
    def name(self) -> str:
        """The server as people write it: with its port if that is not the usual one."""
        return self.host if self.port == _PORTS[self.scheme] else f"{self.host}:{self.port}"


def place_at(url: str) -> RemoteAddress | None:
    """Return the server of an address; None if it is not a supported one."""
    found = _URL.fullmatch(url) or (None if url.startswith(("/", "-", ".")) else _SCP.fullmatch(url))
    if found is None:
        return None
    parts = found.groupdict()
    scheme: Literal["https", "ssh"] = "https" if parts.get("scheme") == "https" else "ssh"
    port = int(parts.get("port") or _PORTS[scheme])
    path = parts["path"].strip("/").removesuffix(".git")
    return RemoteAddress(scheme=scheme, host=parts["host"].lower(), port=port, path=path)


def token_for(ctx: Context, place: RemoteAddress) -> str:
    """Return the token that the operator named for a repository, for who owns it, or for its server; empty without one.

    What names most of the address counts: `github.com/acme/app`, `github.com/acme`, `github.com`.
    """
    tokens = as_mapping(_config_of(ctx).get("tokens"))
    parts = [place.name, *place.path.split("/")]
    named = ("/".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((str(tokens[name]) for name in named if name in tokens), "")


def reach_of(ctx: Context, place: RemoteAddress, names: Iterable[str] = ()) -> Reach:
    """Return the reach of a program that talks to one server, and to `names` of hosts that belong to it."""
    host = f"{place.host}:{place.port}"
    listed = [str(name).lower() for name in as_list(_config_of(ctx).get("private_hosts"))]
    if host in listed or place.host in listed:
        return Reach(private=(host,))
    if _is_address(place.host):
        raise ToolFailure("denied", f"{place.host} is an address: servers are reached by name", hint=PRIVATE)
    return Reach(hosts=(host, *names))


def configured_file(ctx: Context, name: str) -> Path | None:
    """Return a file that the operator named. Raises `ToolFailure("unavailable")` when it is not there."""
    value = _config_of(ctx).get(name)
    if not isinstance(value, str) or not value:
        return None
    path = Path(value).expanduser()
    if not path.is_file() or _SPECIAL & set(str(path)):
        raise ToolFailure("unavailable", f"tools.git.{name} in the configuration names no file that can be used")
    return path


def _config_of(ctx: Context) -> Mapping[str, Any]:
    return as_mapping(ctx.lent.setting("git"))


def _is_address(host: str) -> bool:
    return host.startswith("[") or re.fullmatch(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", host) is not None


class Remote(Struct, frozen=True, kw_only=True):
    """One remote of a repository."""

    repository: Repository
    name: str
    url: str
    place: RemoteAddress | None
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

    async def push(self, branch: str, commit: str) -> None:
        """Push a commit as a branch, never by force."""
        async with self._bare() as bare:
            done = await self._run(bare, "push", "--porcelain", self.url, f"{commit}:refs/heads/{branch}")
        if done.status:
            raise _failure("push", self.name, done)
        await self._follow(branch, commit)

    async def _follow(self, branch: str, commit: str) -> None:
        await self.repository.ask("update-ref", f"refs/remotes/{self.name}/{branch}", commit)

    @asynccontextmanager
    async def _bare(self) -> AsyncGenerator[Path]:
        """Make a bare repository with the commits of the workspace's repository and none of its configuration."""
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

    async def _run(self, bare: Path, *arguments: str) -> GitOutput:
        ctx = self.repository.ctx
        objects = self.repository.tree / await self.repository.ask("rev-parse", "--git-path", "objects")
        given = _access(ctx, self.place)
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
        raise ToolFailure("invalid_arguments", f"{name!r} is not a remote name")
    url = (await repository.run("config", "--get", f"remote.{name}.url")).text
    if not url:
        there = ", ".join((await repository.ask("remote")).split()) or "none"
        raise ToolFailure("not_found", f"there is no remote {name!r}", hint=f"remotes: {there}")
    place = place_at(url)
    if place is None:
        _check_folder(repository.ctx, url)
    return Remote(repository=repository, name=name, url=url, place=place)


class _GitAccess(Struct, frozen=True, kw_only=True):
    words: tuple[str, ...] = ()
    environment: Mapping[str, str]
    readable: tuple[Path, ...] = ()


def _access(ctx: Context, place: RemoteAddress | None) -> _GitAccess:
    """Return the access of git to this server: the transport, and the credentials that were named for it."""
    scheme = place.scheme if place else "file"
    words = ("-c", f"protocol.{scheme}.allow=always", "-c", "http.followRedirects=false")
    if place is None:
        return _GitAccess(words=words, environment={})
    if scheme == "ssh":
        return _over_ssh(ctx, words)
    authority = configured_file(ctx, "ca_file")
    environment = {"NO_PROXY": "", "no_proxy": ""}  # nothing that it wants to reach is inside of the sandbox
    environment |= {"GIT_SSL_CAINFO": str(authority)} if authority else {}
    readable = (authority,) if authority else ()
    if token := token_for(ctx, place):
        basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        environment[_TOKEN] = f"Authorization: Basic {basic}"
        words = (*words, f"--config-env=http.extraHeader={_TOKEN}")
    return _GitAccess(words=words, environment=environment, readable=readable)


def _over_ssh(ctx: Context, words: tuple[str, ...]) -> _GitAccess:
    """Return the ssh command: one key and the configured hosts, without agent and user configuration."""
    key, known = (configured_file(ctx, name) for name in ("ssh_key", "known_hosts"))
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
    command = " ".join(f"-o '{name}={value}'" for name, value in options.items())
    if ctx.sandbox is not None and ctx.sandbox.kind == "bubblewrap":
        command += ' -o ProxyCommand="$TOOLCRIB_PROXY_COMMAND %h %p"'
    readable = tuple(path for path in (key, known) if path is not None)
    return _GitAccess(words=words, environment={"GIT_SSH_COMMAND": f"ssh -F {os.devnull} {command}"}, readable=readable)


def _check_folder(ctx: Context, url: str) -> None:
    """A folder is a remote only inside the workspace, and in a sandbox: its hooks run."""
    path = Path(url.removeprefix("file://"))
    if not path.is_absolute() or "::" in url:
        raise ToolFailure("denied", f"the remote {url} is of a kind that is not used: https and ssh are")
    is_inside = any(path.resolve().is_relative_to(root) for root in workspace_of(ctx).roots)
    if not is_inside or ctx.sandbox is None or ctx.sandbox.kind == "none":
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


def _failure(verb: str, name: str, done: GitOutput) -> ToolFailure:
    message = re.sub(r"(?<=://)[^@/\s]+@", "", done.stderr.decode("utf-8", "replace").strip() or done.message)
    if verb == "push" and re.search(r"non-fast-forward|fetch first", f"{message}{done.text}"):
        return ToolFailure(
            "conflict", f"{name} has commits that are not here", hint="git_pull brings them; then push again"
        )
    if done.refused:
        return ToolFailure("denied", f"git {verb} with {name} was refused: {done.refused[0]}", hint=PRIVATE)
    is_refused = re.search(r"could not read Username|Authentication failed|Permission denied|Host key", message)
    hint = _CREDENTIALS if is_refused else ""
    return ToolFailure("tool_error", f"git {verb} with {name} failed: {message[-1000:]}", hint=hint)


async def _check_remote(arguments: Mapping[str, Any], ctx: Context) -> None:
    """Raise the failure of a remote that does not exist or is never reached, before anyone is asked about it."""
    repository = await repository_at(ctx, str(arguments.get("repo") or "."))
    place = (await remote_of(repository, str(arguments.get("remote") or "origin"))).place
    if place is not None:
        reach_of(ctx, place)


@_remote_tool(
    check=_check_remote,
    op="x.git.push",
    idempotent=True,
    approval="mode",
    traits=["outbound"],
    tags=["git", "publish", "upload", "remote"],
    examples=[{}, {"branch": "feature/login", "set_upstream": True}],
    policy={
        "dont": ["Push what the user did not ask to be pushed."],
        "edge_cases": ["It never forces: when the remote has more, pull first."],
    },
)
async def git_push(
    ctx: Context, branch: str = "", remote: str = "origin", set_upstream: bool = False, repo: str = "."
) -> dict[str, Any]:
    """Push a branch to a remote, never by force.

    Args:
        branch: Which one; the current branch when not given.
        remote: Where to.
        set_upstream: Let the branch follow the remote's from now on.
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    name = await _branch_name(repository, branch)
    commit = await repository.commit_of(f"refs/heads/{name}")
    there = await remote_of(repository, remote)
    await there.push(name, commit)
    if set_upstream:
        await repository.ask("branch", "--quiet", f"--set-upstream-to={remote}/{name}", name)
    return {"branch": name, "remote": remote, "commit": commit}


@_remote_tool(
    check=_check_remote,
    op="x.git.pull",
    idempotent=True,
    tags=["git", "update", "download", "remote", "sync"],
    examples=[{}, {"branch": "main", "rebase": True}],
    policy={"edge_cases": ["With conflicts nothing is merged, and the files are named."]},
)
async def git_pull(
    ctx: Context, branch: str = "", remote: str = "origin", rebase: bool = False, repo: str = "."
) -> dict[str, Any]:
    """Fetch a branch from a remote and merge it into the current one. With conflicts everything stays as it was.

    Args:
        branch: The remote's branch; the one of the current branch's name when not given.
        remote: Where from.
        rebase: Put the own commits on top instead of merging.
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    name = await _branch_name(repository, branch)
    before = (await repository.run("rev-parse", "--quiet", "--verify", "HEAD")).text
    there = await remote_of(repository, remote)
    commit = await there.fetch(name)
    if rebase and before:
        await _rebase(repository, commit)
    else:
        await merge(repository, commit, f"Merge branch '{name}' of {remote}")
    after = await repository.ask("rev-parse", "HEAD")
    count = await repository.ask("rev-list", "--count", f"{before}..{after}" if before else after)
    return {"branch": await repository.branch(), "commit": after, "new_commits": int(count)}


async def _rebase(repository: Repository, commit: str) -> None:
    await repository.check_finished()
    environment = await repository.identity()
    done = await repository.run("rebase", "--no-autostash", "--no-verify", "--quiet", commit, environment=environment)
    if not done.status:
        return
    names = await repository.conflicts()
    await repository.run("rebase", "--abort")
    if names:
        raise ToolFailure("conflict", f"the rebase was taken back, for these files conflict: {', '.join(names)}")
    raise ToolFailure("tool_error", f"git rebase failed: {done.message}")


@_remote_tool(
    lacks=lacks_any(lacks_program("git"), lacks_program("gh"), lacks_setting("git", "tokens")),
    op="x.git.pull_request.create",
    idempotent=False,
    traits=["outbound"],
    tags=["git", "github", "pull request", "review"],
    examples=[{"title": "Fix the login of new users", "body": "Closes #12.", "base": "main"}],
    policy={
        "do": ["Push the branch first: git_push."],
        "edge_cases": ["It needs gh on this machine and a token for github.com in the configuration."],
    },
)
async def git_create_pr(
    ctx: Context,
    title: Annotated[str, Field(min_length=1)],
    body: str = "",
    branch: str = "",
    base: str = "",
    draft: bool = False,
    repo: str = ".",
) -> str:
    """Open a pull request on GitHub for a branch that was pushed. Returns its address.

    Args:
        title: Its title.
        body: What it changes and why, in Markdown.
        branch: The branch with the changes; the current one when not given.
        base: The branch to merge into; the default branch when not given.
        draft: Open it as a draft.
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    head = await _branch_name(repository, branch)
    into = checked_name(base or await repository.default_branch())
    if head == into:
        raise ToolFailure("invalid_arguments", f"{head} cannot be merged into itself", hint="create a branch first")
    remote = await remote_of(repository, "origin")
    if remote.place is None:
        raise ToolFailure("tool_error", "origin is a folder of the workspace: it has no pull requests")
    server = replace(remote.place, scheme="https", port=remote.place.port if remote.place.scheme == "https" else 443)
    words = ("--repo", f"{server.name}/{server.path}", "--title", title, "--body", body, "--head", head, "--base", into)
    return await _gh(repository, server, ("pr", "create", *words, *(["--draft"] if draft else [])))


async def _gh(repository: Repository, server: RemoteAddress, words: tuple[str, ...]) -> str:
    """Return the output of gh, which reaches one server, with the token for it, and has no other login."""
    ctx = repository.ctx
    token = token_for(ctx, server)
    if not token:
        raise ToolFailure(
            "unavailable",
            f"there is no token for {server.name}",
            hint=f"the operator names it in the config: tools: {{git: {{tokens: {{{server.name}: …}}}}}}",
        )
    authority = configured_file(ctx, "ca_file")
    is_public = server.name == "github.com"
    folder = await to_thread.run_sync(lambda: Path(mkdtemp(dir=ctx.lent.folder("git"))))
    program = Program(
        argv=("gh", *words),
        cwd=folder,
        folders=(folder,),
        environment={
            "GH_TOKEN" if is_public else "GH_ENTERPRISE_TOKEN": token,
            "GH_CONFIG_DIR": str(folder),
            "GH_PROMPT_DISABLED": "1",
            "GH_NO_UPDATE_NOTIFIER": "1",
            "GIT_DIR": "/nonexistent",
            **({"SSL_CERT_FILE": str(authority)} if authority else {}),
        },
        readable=(authority,) if authority else (),
        network=reach_of(ctx, server, _OF_GITHUB if is_public else ()),
    )
    try:
        done = await run(ctx, program)
    finally:
        await to_thread.run_sync(lambda: rmtree(folder, ignore_errors=True))
    if done.refused:
        raise ToolFailure("denied", f"gh was refused: {done.refused[0]}", hint=PRIVATE)
    if done.status:
        raise ToolFailure("tool_error", f"gh {words[0]} {words[1]} failed: {done.message}")
    return done.text


async def _branch_name(repository: Repository, branch: str) -> str:
    name = branch or await repository.branch()
    if not name:
        raise ToolFailure("tool_error", "no branch is checked out", hint="name the branch")
    return checked_name(name)
