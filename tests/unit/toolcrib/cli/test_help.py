"""What the command line costs and says before it does anything."""

import json
import subprocess
import sys

import pytest

from toolcrib.cli.main import COMMANDS
from toolcrib.errors import CODES

from .conftest import User


def test_help_lists_every_command_and_exit_status(user: User) -> None:
    text = " ".join(user.types("--help").stdout.split())

    assert [name for name in COMMANDS if f" {name} " not in text] == []
    assert [code for code, info in CODES.items() if info.exit not in (1, 2) and code not in text] == []


def test_every_command_explains_itself(user: User) -> None:
    for name in COMMANDS:
        result = user.types(name, "--help")

        assert (result.exit_code, "Usage:" in result.stdout) == (0, True), name


def test_the_version_is_an_option_too(user: User) -> None:
    assert user.types("--version").stdout == user.types("version").stdout != ""


def test_a_command_that_does_not_exist_gets_the_nearest(user: User) -> None:
    result = user.types("fnd")

    assert result.exit_code == 2
    assert "Did you mean 'find'?" in result.stderr


@pytest.mark.process
def test_help_does_not_load_the_world() -> None:
    probe = (
        "import sys, json; sys.argv = ['toolcrib', '--help']; from toolcrib.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: print(json.dumps([end.code, sorted({name.split('.')[0] for name in sys.modules})]))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60)

    status, modules = json.loads(done.stdout.splitlines()[-1])
    heavy = {
        "anyio",
        "asyncio",
        "httpx2",
        "jsonschema_rs",
        "orjson",
        "pydantic",
        "rich",
        "starlette",
        "uvicorn",
        "yaml",
    }
    assert (status, heavy & set(modules)) == (0, set())


@pytest.mark.process
def test_the_installed_command_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from toolcrib.cli.main import main; main()", "version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout.startswith("toolcrib 0.")
    assert done.stderr == ""
