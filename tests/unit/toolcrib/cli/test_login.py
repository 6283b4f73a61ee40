"""`toolcrib login` and `logout`, typed by somebody whose browser has no screen, at a server that wants a login."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from peers.auth import AuthPeer, Browser, auth_peer
from rig import PATIENCE
from toolcrib.cli.commands.login import login_display
from toolcrib.config import bare
from toolcrib.config.directories import Directories
from toolcrib.crib.storage import AccountLogins, logins_in
from toolcrib.mcp.auth.access import Access
from toolcrib.net.oauth.flow import Person
from toolcrib.net.oauth.spec import OAuthSpec
from unit.toolcrib_work.caldav_server import PASSWORD, event, serve

from .conftest import User

FOLLOW = "import sys, urllib.request as r; r.build_opener(r.ProxyHandler({})).open(sys.argv[1]).read()"


@pytest.fixture
def peer() -> Iterator[AuthPeer]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(auth_peer()) as running:
        yield running


def logs_in(user: User, *words: str) -> "subprocess.CompletedProcess[str]":
    """Type `toolcrib login` in a terminal of its own: a browser is found once a process."""
    browser = user.has("browser.py", FOLLOW)
    folders = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return subprocess.run(
        [Path(sys.executable).with_name("toolcrib"), "login", *words],
        env={
            **folders,
            "HOME": str(user.home),
            "BROWSER": f"{sys.executable} {browser} %s",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_connect_says_how_to_log_in_to_a_server_that_stays_in_its_client(user: User, peer: AuthPeer) -> None:
    user.has(".cursor/mcp.json", {"mcpServers": {"peer": {"url": peer.url}}})

    told = user.types("connect", "cursor", "--replace", "--anyway").stderr

    again = "toolcrib disconnect cursor && toolcrib connect cursor --replace"
    assert f"To do: `toolcrib import cursor && toolcrib login peer && {again}`\n" in told


@pytest.mark.long
@pytest.mark.process
def test_a_server_is_added_logged_in_to_used_and_left_again(
    user: User, peer: AuthPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    added = user.types("add", "peer", peer.url)
    why = user.types("why", "peer__add")
    done = logs_in(user, "peer")
    called = user.types("call", "peer__add", "a:=1", "b:=2")
    left = user.types("logout", "peer")
    why_not = user.types("why", "peer__add")
    after = user.types("call", "peer__add", "a:=1", "b:=2")
    again = user.types("logout", "peer")

    assert "needs a login: " in added.stdout and "Run `toolcrib login peer`." in added.stdout
    assert "Run `toolcrib login peer`." in why.stdout
    assert (done.returncode, done.stdout) == (0, f"logged in to peer at {peer.issuer}: 2 tools (ready)\n"), done.stderr
    assert "only you can read" in done.stderr and "reviewed" in done.stderr
    assert (called.exit_code, called.stdout.strip()) == (0, "3"), called.output
    assert left.stdout == "logged out of peer\n"
    assert (why_not.exit_code, "Run `toolcrib login peer`." in why_not.stdout) == (7, True), why_not.output
    assert peer.accounts.access_tokens == {} and peer.accounts.refresh_tokens == {}
    assert after.exit_code != 0 and "toolcrib login peer" in after.output
    assert again.stdout == "there was no login to peer\n"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("{command: cat}", "is a program on this machine"),
        ('{url: "https://a.example/mcp", headers: {Authorization: Bearer x}}', "has no logins"),
        ('{url: "https://a.example/mcp", auth: none}', "has no logins"),
        ('{url: "https://a.example/mcp", trust: true}', "servers.it.trust: unknown key"),
    ],
)
def test_a_server_without_logins_is_told_as_such(user: User, entry: str, told: str) -> None:
    user.has(".config/toolcrib/config.yaml", f"servers: {{it: {entry}}}\n")

    result = user.types("login", "it")

    assert (result.exit_code, told in result.output) == (2, True), result.output


async def test_a_page_of_another_site_than_the_issuer_is_shown_with_who_gets_the_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show, told = login_display({}, browser=False), list[bool]()
    for issuer in ("https://sso.example", "https://mixed-up.example"):
        await show("https://sso.example/authorize?state=1", issuer)
        told.append("mixed-up.example" in capsys.readouterr().err)

    assert told == [False, True]


def test_an_unknown_server_is_told_with_the_nearest(user: User) -> None:
    user.has(".config/toolcrib/config.yaml", 'servers: {notion: {url: "https://a.example/mcp"}}\n')

    result = user.types("login", "notoin")

    assert result.exit_code == 2
    assert "did you mean 'notion'?" in result.output


@pytest.mark.slow
def test_the_password_of_an_account_is_asked_for_once_used_and_forgotten(
    user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    listing = ("call", "list_calendar_events", "timeMin=2026-11-01", "timeMax=2026-12-01")
    with serve(tmp_path) as server:
        other = server.user()
        other.put("dentist", event("dentist", "Dentist", ":20261103T090000Z"))
        account = {"url": f"{server.url}{other.name}/", "user": other.name}
        calendar = {"accounts": {"home": account}, "refresh_seconds": 0}
        tools = {"web": {"private_hosts": ["127.0.0.1"]}, "calendar": calendar}
        user.has(".config/toolcrib/config.yaml", {"tools": tools})
        before = user.types(*listing)
        done = user.types("login", "home", stdin=f"{PASSWORD}\n")
        after = user.types(*listing)
        left = user.types("logout", "home")
        again = user.types("logout", "home")

    assert "toolcrib login home" in before.output
    assert (done.exit_code, "logged in to home" in done.stdout, PASSWORD in done.output) == (0, True, False)
    assert ("Dentist" in after.stdout, "toolcrib login" in after.output) == (True, False)
    assert (left.stdout, again.stdout) == ("logged out of home\n", "there was no login to home\n")


@pytest.mark.parametrize(
    ("account", "told"),
    [
        ("{url: 'https://a.example/'}", "tools.calendar.accounts.home has no `user`"),
        ("{url: 'https://a.example/', user: ada, password: x}", "tools.calendar.accounts.home.password"),
        ("{url: 'https://a.example/', auth: {grant: password}}", "tools.calendar.accounts.home.auth"),
    ],
)
def test_an_account_without_a_login_to_make_is_told_as_such(user: User, account: str, told: str) -> None:
    user.has(".config/toolcrib/config.yaml", f"tools: {{calendar: {{accounts: {{home: {account}}}}}}}\n")
    result = user.types("login", "home", stdin="x\n")

    assert (result.exit_code, told in result.output) == (2, True), result.output


@pytest.mark.long
async def test_an_account_of_oauth_uses_the_login_that_was_made_for_it(tmp_path: Path) -> None:
    async with auth_peer() as peer:
        account = {"url": peer.url, "auth": {"type": "oauth"}}
        directories = Directories.of({"HOME": str(tmp_path)})
        settings = bare().with_values(tools={"calendar": {"accounts": {"work": account}}}, directories=directories)
        logins = AccountLogins(settings, directories, lambda secrets: None)
        before = await logins.authorization("calendar", "work")
        person = Person(show=Browser().show, seconds=PATIENCE)
        access = Access("work", peer.url, OAuthSpec(), logins_in(directories), person=person)
        await access.log_in(None)
        after = await logins.authorization("calendar", "work")
        await access.aclose()
        await logins.aclose()

        assert (before, after.partition(" ")[0]) == ("", "Bearer")
        assert after.partition(" ")[2] in peer.accounts.access_tokens
