"""`toolcrib login`, `logout` and `secret`: logins of servers and of accounts, values of `${keyring:NAME}`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from importlib.metadata import version
from typing import Annotated, Any

import typer

from ...config import Settings
from ...config.loader import here
from ...config.secrets import remove_secret, secret_names, write_secret
from ...core.similar import did_you_mean
from ...crib.storage import ToolAccount, accounts_in, logins_in, open_store
from ...errors import ToolFailure, UsageError
from ...mcp.auth.access import Access
from ...mcp.auth.login_store import login_key
from ...mcp.client.http_exchange import probe_auth_challenge
from ...mcp.client.spec import ServerSpec
from ...net.oauth.flow import Person
from ...net.oauth.login import scopes_in
from ...net.oauth.spec import OAuthSpec
from ...net.urls import origin
from ..actions import action_group
from ..browser import can_open_browser, open_browser
from ..options import AsJson, ConfigFiles, run, settings_of
from ..output import emit_json, escape, note, out, read_secret
from ..server_probe import Probe, probe

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a secret.")]


def login(
    server: Annotated[str, typer.Argument(help="The name of a server, or of a tool's account.")],
    config: ConfigFiles = None,
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="Ask for this right as well; repeatable.", metavar="SCOPE")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the browser; the address is shown either way.")] = True,
    limit: Annotated[float, typer.Option("--limit", help="Seconds that you have to log in.", min=1)] = 300.0,
    as_json: AsJson = False,
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for the server's tools.", min=0)] = 20.0,
) -> None:
    """Log in to a remote server with your browser, and list its tools.

    Running processes use the new login without a restart. Unreviewed tools of the server
    count as reviewed then, as with `toolcrib add`; changed ones never do.

    An account, such as one of `tools.calendar.accounts`, that has a `user` is asked for its
    password instead, which is read from standard input if that is not a terminal.
    """
    settings = settings_of(config)
    scopes = scopes_in(" ".join(scope or ()))
    if (account := _account(settings, server)) is not None:
        person = Person(show=login_display(settings.environment, browser=browser), seconds=limit)
        return _log_in_account(settings, account, person, scopes, as_json=as_json)
    spec, oauth = _remote(settings, server)
    logins = logins_in(settings.directories)

    async def main() -> tuple[str, bool]:
        person = Person(show=login_display(settings.environment, browser=browser), seconds=limit)
        access = Access(spec.name, spec.url, oauth, logins, person=person)
        try:
            challenge = await probe_auth_challenge(spec, version("toolcrib"))
            try:
                made = await access.log_in(challenge, scopes)
            except ToolFailure as failure:
                if challenge is None and failure.code == "unavailable":
                    raise UsageError(f"{server} lets us in without a login, and offers none") from failure
                raise
        finally:
            await access.aclose()
        async with open_store(settings) as store:
            known = any(pin.source.partition(" ")[0] == server for pin in await store.pins.all())
        return made.issuer, not known and settings.sources.lock is None

    issuer, is_new = run(main)
    probed = probe(settings, [spec], wait=wait, accept=is_new)[server]
    _tell(server, issuer, probed, logins.where(login_key(spec.url, oauth)), as_json=as_json)


def logout(
    server: Annotated[str, typer.Argument(help="The server's name here.")],
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """Forget the login to a server, and tell its authorization server that the tokens are no longer wanted."""
    settings = settings_of(config)
    account = _account(settings, server)

    async def main() -> bool:
        if account is not None and not account.auth:
            return remove_secret(account.secret, settings.environment)
        access = _access(settings, server, account)
        try:
            return await access.log_out()
        finally:
            await access.aclose()

    had_login = run(main)
    if as_json:
        emit_json({"server": server, "had_login": had_login})
    else:
        out(f"logged out of {server}" if had_login else f"there was no login to {server}")


def _account(settings: Settings, name: str) -> ToolAccount | None:
    """Return the account of a tool; None where a server has the name."""
    if any(spec.name == name for spec in settings.sources.servers):
        return None
    return accounts_in(settings).get(name)


def _access(settings: Settings, name: str, account: ToolAccount | None, person: Person | None = None) -> Access:
    logins = logins_in(settings.directories)
    if account is not None and (oauth := account.oauth) is not None:
        return Access(account.name, account.url, oauth, logins, person=person)
    spec, oauth = _remote(settings, name)
    return Access(spec.name, spec.url, oauth, logins, person=person)


def _log_in_account(
    settings: Settings, account: ToolAccount, person: Person, scopes: tuple[str, ...], *, as_json: bool
) -> None:
    """Store the password of an account, or log in to it with a browser."""
    key, oauth = f"tools.{account.category}.accounts.{account.name}", account.oauth
    if oauth is None and not account.user:
        raise UsageError(f"{account.name} has no logins: {key} has no `user`, and no `auth`")
    if oauth is None and account.password:
        raise UsageError(f"{account.name} has its password in the configuration: {key}.password")
    if oauth is None:
        place = str(write_secret(account.secret, read_secret(f"password of {account.user}"), settings.environment))
    else:

        async def main() -> None:
            access = _access(settings, account.name, account, person)
            try:
                await access.log_in(None, scopes)
            finally:
                await access.aclose()

        run(main)
        place = logins_in(settings.directories).where(login_key(account.url, oauth))
    if as_json:
        emit_json({"account": account.name, "category": account.category, "kept": place})
    else:
        out(escape(f"logged in to {account.name}: the login is kept in {place}"))


def _remote(settings: Settings, server: str) -> tuple[ServerSpec, OAuthSpec]:
    """Return the server and how it logs in. Raises `UsageError` for one that has no logins."""
    known = {spec.name: spec for spec in settings.sources.servers}
    spec = known.get(server)
    if spec is None:
        for problem in settings.problems:
            if problem.source == server:  # its entry is there, and is broken or not confirmed
                raise UsageError(problem.message + (f"; {problem.hint}" if problem.hint else ""))
        names = [*known, *accounts_in(settings)]
        raise UsageError(f"there is no server or account {server!r} in the configuration{did_you_mean(server, names)}")
    if spec.transport == "stdio":
        raise UsageError(f"{server} is a program on this machine: it gets its credentials in `env`, not by a login")
    if spec.oauth is None:
        raise UsageError(f"{server} has no logins: its credentials are in `headers`, or its `auth` says none")
    return spec, spec.oauth


def login_display(environment: Mapping[str, str], *, browser: bool) -> Callable[[str, str], Coroutine[Any, Any, None]]:
    """Return a function that prints an address on this terminal and opens the browser."""
    shows = browser and can_open_browser(environment)

    async def show(url: str, issuer: str) -> None:
        if origin(url) != origin(issuer):
            note(f"The page is of {origin(url)}; what you allow there is given to {origin(issuer)}. Do you know both?")
        note(f"Log in here{', if no browser opens by itself' if shows else ''}:\n\n{url}\n")
        if not shows:
            note("A browser on another machine ends on a page that it cannot load: run curl with that address here.")
        elif not await open_browser(url):
            note("No browser could be opened.")

    return show


def _tell(server: str, issuer: str, probed: Probe, where: str, *, as_json: bool) -> None:
    if as_json:
        emit_json({"server": server, "issuer": issuer, "tools": probed.tools, "state": probed.state, "kept": where})
        return
    out(f"logged in to {server} at {issuer}: {probed.tools} tools ({probed.state})")
    note(f"the login is kept in {where}" + (", which only you can read" if where.endswith(".json") else ""))
    if where.endswith(".json"):
        note("the extra `keyring` keeps logins in the system's keyring instead, if there is one")
    if probed.accepted:
        note("its tools' definitions count as reviewed, as they are now; a change will be withheld until you accept it")


secret = action_group(
    "List the secrets that your configuration names with `${keyring:NAME}` or `${input:ID}`; set or remove one. "
    "Values are never shown.\n\n"
    "They are kept in the system's keyring (extra `keyring`), else in a file that only you can read.",
    default="list",
)


@secret.command("list")
def list_secrets(as_json: AsJson = False) -> None:
    """List the names of the secrets that are kept."""
    names = secret_names(here().environ)
    if as_json:
        emit_json(names)
    else:
        out("\n".join(map(escape, names)) or "no secrets are kept")


@secret.command("set")
def set_secret(name: _Name, as_json: AsJson = False) -> None:
    """Ask for the value of a secret and keep it. The value is read from standard input if that is not a terminal."""
    place = write_secret(name, read_secret(name), here().environ)
    if as_json:
        emit_json({"secret": name, "action": "set", "kept": str(place)})
    else:
        out(escape(f"{name} is kept in {place}"))


@secret.command("remove")
def remove(name: _Name, as_json: AsJson = False) -> None:
    """Remove a secret."""
    environ = here().environ
    if not remove_secret(name, environ):
        raise UsageError(f"there is no secret {name!r}{did_you_mean(name, secret_names(environ))}")
    if as_json:
        emit_json({"secret": name, "action": "remove"})
    else:
        out(escape(f"removed {name}"))
