"""Logins are found again by whoever shares their place, never by another configuration, and kept where it is safest."""

from pathlib import Path

import anyio
import pytest

from toolcrib.errors import ToolFailure
from toolcrib.mcp.auth.login_store import FileLogins, MemoryLogins, login_key
from toolcrib.net.oauth.login import Login, RegisteredClient, Tokens
from toolcrib.net.oauth.spec import OAuthSpec

URL = "https://mcp.example/mcp"
KEY = login_key(URL, OAuthSpec())
LOGIN = Login(
    resource=URL,
    issuer="https://sso.example",
    token_endpoint="https://sso.example/token",
    revocation_endpoint="https://sso.example/revoke",
    client=RegisteredClient(
        id="us",
        secret="client-secret",
        auth="post",
        redirect_uri="http://127.0.0.1:1/callback",
        scopes=("a",),
        expires=9.0,
    ),
    tokens=Tokens(access="access-token", refresh="refresh-token", expires=7.5, scopes=("a", "b")),
)


class Ring:
    """A keyring that takes everything, until it is locked."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        self._check()
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._check()
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._check()
        del self.kept[service, username]

    def _check(self) -> None:
        if self.locked:
            raise RuntimeError("locked")


@pytest.mark.parametrize("kind", ["file", "keyring", "memory"])
def test_a_login_is_read_as_it_was_written_and_gone_once_removed(kind: str, tmp_path: Path) -> None:
    ring = Ring()
    logins = MemoryLogins() if kind == "memory" else FileLogins(tmp_path, lambda: ring if kind == "keyring" else None)

    before = logins.stamp(KEY)
    logins.write(KEY, LOGIN)
    written = logins.stamp(KEY)

    assert logins.read(KEY) == LOGIN
    assert logins.read(login_key(URL, OAuthSpec(client_id="other"))) is None
    assert (logins.remove(KEY), logins.remove(KEY), logins.read(KEY)) == (True, False, None)
    assert len({before, written, logins.stamp(KEY)} - {before}) >= 1
    assert ring.kept == {}


def test_with_a_keyring_no_file_holds_a_secret(tmp_path: Path) -> None:
    ring = Ring()
    logins = FileLogins(tmp_path, lambda: ring)

    logins.write(KEY, LOGIN)

    text = "".join(path.read_text() for path in tmp_path.iterdir())
    assert [secret for secret in ("access-token", "refresh-token", "client-secret") if secret in text] == []
    assert logins.where(KEY) == "the system's keyring"


def test_a_keyring_that_is_locked_leaves_the_file(tmp_path: Path) -> None:
    ring = Ring()
    ring.locked = True
    logins = FileLogins(tmp_path, lambda: ring)

    logins.write(KEY, LOGIN)

    assert logins.read(KEY) == LOGIN
    assert logins.where(KEY).endswith(f"{KEY}.json")


def test_a_logout_that_a_locked_keyring_does_not_take_fails_and_can_be_repeated(tmp_path: Path) -> None:
    ring = Ring()
    logins = FileLogins(tmp_path, lambda: ring)
    logins.write(KEY, LOGIN)
    ring.locked = True
    with pytest.raises(ToolFailure) as locked:
        logins.remove(KEY)
    ring.locked = False

    assert (locked.value.code, logins.read(KEY)) == ("storage", LOGIN)
    assert (logins.remove(KEY), ring.kept) == (True, {})
    logins.write(KEY, LOGIN)
    ring.kept.clear()  # by the user
    assert logins.remove(KEY) is True


def test_a_logout_removes_what_a_crash_left_and_a_link_in_the_place_is_replaced_not_followed(tmp_path: Path) -> None:
    logins, victim = FileLogins(tmp_path / "logins"), tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "logins").mkdir()
    (tmp_path / "logins" / f"{KEY}.json").symlink_to(victim)
    (tmp_path / "logins" / f"{KEY}.0123456789abcdef.new").write_text("half a login")

    logins.write(KEY, LOGIN)
    mode = (tmp_path / "logins" / f"{KEY}.json").lstat().st_mode

    assert (logins.remove(KEY), oct(mode), victim.read_text()) == (True, "0o100600", "mine")
    assert list((tmp_path / "logins").iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1, "client": {}}', '{"kept": "keyring"}'])
def test_what_is_no_login_of_ours_counts_as_none(text: str, tmp_path: Path) -> None:
    (tmp_path / f"{KEY}.json").write_text(text)

    assert FileLogins(tmp_path).read(KEY) is None


async def test_one_at_a_time_holds_a_login_and_a_holder_that_ends_lets_it_go(tmp_path: Path) -> None:
    order: list[str] = []
    first_holds, second_holds = anyio.Event(), anyio.Event()

    async def first() -> None:
        async with FileLogins(tmp_path).held(KEY):
            first_holds.set()
            with anyio.move_on_after(0.1):
                await second_holds.wait()
            order.append("first")

    async def second() -> None:
        await first_holds.wait()
        async with FileLogins(tmp_path).held(KEY):
            second_holds.set()
            order.append("second")

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        group.start_soon(second)

    assert order == ["first", "second"]


async def test_a_place_that_cannot_be_written_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ToolFailure, match="logins cannot be kept in") as caught:
        async with FileLogins(tmp_path / "file").held(KEY):
            pass

    assert caught.value.code == "storage"


def test_the_same_server_written_otherwise_has_the_same_login() -> None:
    assert login_key("HTTPS://MCP.example:443/mcp#x", OAuthSpec()) == KEY
    assert login_key("https://mcp.example/other", OAuthSpec()) != KEY
    assert login_key(URL, OAuthSpec(issuer="https://sso.example")) != KEY
