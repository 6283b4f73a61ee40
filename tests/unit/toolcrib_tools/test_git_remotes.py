"""The git tools and servers: a forge over https, a server over ssh, gh; each with the named credentials and no others.

The servers are real (`git http-backend`, sshd), on this machine, under names that lead here only in these tests.
"""

from __future__ import annotations

import base64
import getpass
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from peers.forge import Forge, forge, leading, pull_requests
from rig import PATIENCE, free_port
from rig.sandbox import needs_gh, needs_sandbox, needs_ssh, needs_sshd
from toolcrib.config import bare
from toolcrib.core.result import ToolError
from toolcrib.crib.session import Session
from unit.toolcrib_tools import repositories
from unit.toolcrib_tools.repositories import git, told
from unit.toolcrib_tools.telling import failure_of

pytestmark = [needs_sandbox, pytest.mark.process]

TOKEN = "token-of-the-forge-4711"


@pytest.fixture
def there(tmp_path: Path, repo: Path) -> Generator[Forge]:
    """A forge with a repository, which is the origin of ours; who has the token may use it."""
    with forge(tmp_path / "forge", token=TOKEN) as running, leading({"git.example": ["127.0.0.1"]}):
        git(running.root, "init", "--quiet", "--bare", "team/work.git")
        git(repo, "remote", "add", "origin", running.url("team/work.git"))
        yield running


def named(there: Forge, **more: Any) -> dict[str, Any]:
    """What an operator says to let the git tools use a forge."""
    said = {"tokens": {there.host: TOKEN}, "ca_file": str(there.ca_file), "private_hosts": [there.host]}
    return {**said, **more}


@asynccontextmanager
async def session_of(
    root: Path, said: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> AsyncGenerator[Session]:
    ours = {**bare().environment, **(environment or {})}
    async with repositories.session_of(root, tools={"git": said}, environment=ours) as session:
        yield session


# https


async def test_push_and_pull_over_https_with_the_named_token(repo: Path, there: Forge, tmp_path: Path) -> None:
    other = there.root / "team" / "work.git"
    async with session_of(repo, named(there)) as session:
        pushed = await told(session, "git_push", set_upstream=True)
        at_once = git(other, "log", "--format=%s", "main")
        git(tmp_path, "clone", "--quiet", str(other), "other")
        (tmp_path / "other" / "b.txt").write_text("b\n")
        git(tmp_path / "other", "add", ".")
        git(tmp_path / "other", "commit", "--quiet", "-m", "theirs")
        git(tmp_path / "other", "push", "--quiet")
        pulled = await told(session, "git_pull")

    assert (pushed["branch"], at_once) == ("main", "first")
    assert (pulled["new_commits"], (repo / "b.txt").read_text()) == (1, "b\n")
    sent = {credential for _, _, credential in there.heard}
    assert sent == {f"Basic {base64.b64encode(f'x-access-token:{TOKEN}'.encode()).decode()}"}


async def test_a_token_named_for_one_owner_goes_to_no_other_repository_of_its_server(repo: Path, there: Forge) -> None:
    """A hostile repository may name another one on a server that there is a token for as its origin."""
    mine, other = f"{there.host}/team", f"{there.host}/somebody"
    async with session_of(repo, named(there, tokens={mine: TOKEN, there.host: "of-others"})) as session:
        pushed = await told(session, "git_push", set_upstream=True)
    async with session_of(repo, named(there, tokens={other: TOKEN, f"{there.host}/te": TOKEN})) as session:
        error = await failure_of(session, "git_push", set_upstream=True)

    assert pushed["branch"] == "main"
    assert (error.code, "could not read Username" in error.message) == ("tool_error", True)


@pytest.mark.parametrize(
    ("said", "code", "message"),
    [
        ({"tokens": {}}, "tool_error", "git push with origin failed: fatal: could not read Username"),
        ({"tokens": {"other.example": "another"}}, "tool_error", "git push with origin failed: fatal: could not read"),
        ({"tokens": {"git.example": "of-the-usual-port"}}, "tool_error", "git push with origin failed: fatal: could"),
        ({"private_hosts": []}, "denied", "git push with origin was refused: git.example:"),
        ({"private_hosts": ["git.example:1"]}, "denied", "git push with origin was refused: git.example:"),
        ({"ca_file": ""}, "tool_error", "git push with origin failed: fatal: unable to access"),
        ({"ca_file": "/nowhere.pem"}, "unavailable", "tools.git.ca_file in the configuration names no file"),
    ],
    ids=["no-token", "another-token", "another-port", "private", "private-port", "unknown-authority", "no-file"],
)
async def test_what_the_operator_did_not_name_is_not_there(
    repo: Path, there: Forge, said: dict[str, Any], code: str, message: str
) -> None:
    async with session_of(repo, named(there, **said)) as session:
        error = await failure_of(session, "git_push")

    assert (error.code, error.message[: len(message)]) == (code, message)
    assert all(credential == "" for _, _, credential in there.heard)
    assert "another" not in f"{error}", "what else there is a token for is nobody's business"
    assert "of-the-usual-port" not in f"{error}"


async def test_credentials_of_the_user_are_not_used(repo: Path, there: Forge, tmp_path: Path) -> None:
    """A helper, a .netrc and a token in the environment: all of the user's, none of the tools'."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text("machine git.example login a password b\n")
    (home / ".git-credentials").write_text(f"https://a:b@git.example:{there.port}\n")
    (home / ".gitconfig").write_text("[credential]\n\thelper = store\n")
    git(repo, "config", "credential.helper", "!echo username=a; echo password=b; :")
    environment = {"HOME": str(home), "GITHUB_TOKEN": "x", "GH_TOKEN": "x", "GIT_ASKPASS": "/bin/echo"}
    async with session_of(repo, named(there, tokens={}), environment) as session:
        error = await failure_of(session, "git_push")

    assert error.message.startswith("git push with origin failed: fatal: could not read Username")
    assert {credential for _, _, credential in there.heard} == {""}


async def test_a_redirect_to_another_place_is_not_followed(repo: Path, there: Forge, tmp_path: Path) -> None:
    """The remote's own configuration and answers lead nowhere that was not named."""
    with forge(tmp_path / "evil", name="evil.example") as evil:
        git(repo, "config", f"url.{evil.url('')}.insteadOf", there.url(""))
        git(repo, "config", "http.proxy", f"http://127.0.0.1:{evil.port}")
        git(repo, "config", "remote.origin.pushurl", evil.url("x.git"))
        async with session_of(repo, named(there)) as session:
            await told(session, "git_push")

    assert (len(there.heard) > 0, evil.heard) == (True, [])


@pytest.mark.parametrize(
    "url",
    [
        "https://169.254.169.254/latest/meta-data",
        "https://127.0.0.1:{port}/team/work.git",
        "https://localhost:{port}/team/work.git",
        "https://[::1]:{port}/team/work.git",
        "https://2130706433:{port}/team/work.git",
        "https://inside.example/team/work.git",
        "ssh://git@127.0.0.1:{port}/team/work.git",
        "git@localhost:team/work.git",
        "ssh://-oProxyCommand=touch${{IFS}}canary/x",
        "ssh://git@a.example:22;touch canary/x",
        "https://git.example:{port}\\@127.0.0.1/x",
        "git://git.example/x",
        "file://git.example/x",
    ],
)
async def test_a_repository_cannot_send_git_to_an_address_of_its_own(repo: Path, there: Forge, url: str) -> None:
    git(repo, "config", "remote.origin.url", url.format(port=there.port))
    with leading({"inside.example": ["10.0.0.7"], "localhost": ["127.0.0.1"]}):
        async with session_of(repo, named(there)) as session:
            push = await failure_of(session, "git_push")
            pull = await failure_of(session, "git_pull")

    assert (push.code, pull.code) == ("denied", "denied"), push.message
    assert there.heard == []
    assert not list(repo.rglob("canary*"))


# ssh


@contextmanager
def ssh_server(folder: Path) -> Generator[tuple[int, Path, Path]]:
    """Run sshd for the user of the tests; give its port, the key that it takes, and what tells of its own key."""
    folder.mkdir()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    port = free_port()
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    (folder / "sshd_config").write_text(
        f'Port {port}\nListenAddress 127.0.0.1\nHostKey "{folder}/host"\nAuthorizedKeysFile "{folder}/authorized"\n'
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        f'PermitRootLogin prohibit-password\nPidFile "{folder}/pid"\n'
    )
    host = (folder / "host.pub").read_text().split(" ")
    (folder / "known_hosts").write_text(f"[git.example]:{port} {host[0]} {host[1]}\n")
    words = [shutil.which("sshd", path="/usr/sbin:/usr/bin") or "", "-D", "-e", "-f", str(folder / "sshd_config")]
    if os.geteuid() == 0:  # then it wants a folder of the system's, which is there only where it is a service
        words = [
            "bwrap",
            "--die-with-parent",
            "--bind",
            "/",
            "/",
            "--dev-bind",
            "/dev",
            "/dev",
            "--tmpfs",
            "/run",
            "--dir",
            "/run/sshd",
            *words,
        ]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
        try:
            yield port, folder / "user", folder / "known_hosts"
        finally:
            process.terminate()
            process.wait(PATIENCE)


async def listens(port: int) -> None:
    async def is_there() -> bool:
        try:
            await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
        except OSError:
            return False
        return True

    with anyio.fail_after(PATIENCE):
        while not await is_there():
            await anyio.sleep(0.05)


@needs_ssh
@needs_sshd
async def test_push_and_pull_over_ssh_with_the_named_key_and_host(repo: Path, tmp_path: Path) -> None:
    place = tmp_path / "origin.git"
    git(tmp_path, "init", "--quiet", "--bare", str(place))
    with ssh_server(tmp_path / "its own") as (port, key, known), leading({"git.example": ["127.0.0.1"]}):
        git(repo, "remote", "add", "origin", f"ssh://{getpass.getuser()}@git.example:{port}{place}")
        said = {"ssh_key": str(key), "known_hosts": str(known), "private_hosts": [f"git.example:{port}"]}
        await listens(port)
        async with session_of(repo, said) as session:
            await told(session, "git_push")
            pulled = await told(session, "git_pull")
        failures: dict[str, ToolError] = {}
        unknown = tmp_path / "unknown"
        unknown.write_text("")
        changes: dict[str, dict[str, Any]] = {
            "key": {"ssh_key": ""},
            "host": {"known_hosts": ""},
            "other-host": {"known_hosts": str(unknown)},
            "place": {"private_hosts": []},
        }
        for name, change in changes.items():
            environment = {"SSH_AUTH_SOCK": str(tmp_path / "agent")}
            async with session_of(repo, {**said, **change}, environment) as session:
                failures[name] = await failure_of(session, "git_push")

    assert git(place, "log", "--format=%s", "main") == "first"
    assert pulled["new_commits"] == 0
    assert {name: error.code for name, error in failures.items()} == {
        "key": "tool_error", "host": "tool_error", "other-host": "tool_error", "place": "denied",
    }  # fmt: skip
    assert "Permission denied (publickey)" in failures["key"].message
    assert "Host key verification failed" in failures["host"].message
    assert "ssh_key" in failures["key"].hint


# Pull requests


ADDRESS = "https://git.example/team/work/pull/7"


@needs_gh
async def test_a_pull_request_is_opened_by_gh_with_the_named_token(repo: Path, there: Forge) -> None:
    there.answers = pull_requests(ADDRESS)
    git(repo, "switch", "--quiet", "-c", "topic")
    async with session_of(repo, named(there)) as session:
        await told(session, "git_push")
        there.heard.clear()
        said = await told(session, "git_create_pr", title="Fix it", body="Closes #1.", base="main", draft=True)
        same = await failure_of(session, "git_create_pr", title="Fix it", base="topic")
    async with session_of(repo, named(there, tokens={"github.com": "another"})) as session:
        without = await failure_of(session, "git_create_pr", title="Fix it", base="main")

    assert said == ADDRESS
    made = [asked["variables"]["input"] for asked in there.asked if "createPullRequest" in asked["query"]]
    assert [{key: one[key] for key in ("title", "body", "headRefName", "baseRefName", "draft")} for one in made] == [
        {"title": "Fix it", "body": "Closes #1.", "headRefName": "topic", "baseRefName": "main", "draft": True}
    ]
    assert {credential for _, _, credential in there.heard} == {f"token {TOKEN}"}
    assert same.message == "topic cannot be merged into itself"
    assert (without.code, without.message) == ("unavailable", f"there is no token for {there.host}")
    assert "another" not in f"{without}"
