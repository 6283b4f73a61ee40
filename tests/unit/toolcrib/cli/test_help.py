"""What the command line costs and says before it does anything."""

import json
import platform
import subprocess
import sys
from importlib.metadata import version

import pytest

from toolcrib.cli.main import COMMANDS, SECTIONS
from toolcrib.errors import CODES

from .conftest import User

GUESTS = ("chat", "queue", "work")
"""Commands that the packages of this distribution bring by `toolcrib.commands`."""


@pytest.fixture(scope="module")
def helps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the help of the application (""), of each command and of each action (`results show`)."""
    user = User(tmp_path_factory.mktemp("reader"))
    texts = {name: user.types(*name.split(), "--help").stdout for name in ("", *COMMANDS, *GUESTS)}
    for group in COMMANDS:
        listed = texts[group].partition("\nActions:\n")[2].splitlines()
        for action in [line.split()[0] for line in listed if line.startswith("  ") and line[2:3].strip()]:
            texts[f"{group} {action}"] = user.types(group, action, "--help").stdout
    return texts


def test_help_lists_every_command_and_exit_status(user: User) -> None:
    text = " ".join(user.types("--help").stdout.split())

    assert [name for name in (*COMMANDS, *GUESTS) if f" {name} " not in text] == []
    assert "List your projects; print one as a tree, with its calendar." in text
    assert [code for code, info in CODES.items() if info.exit not in (1, 2) and code not in text] == []


def test_commands_stand_under_headings_in_their_order(user: User) -> None:
    lines = user.types("--help").stdout.splitlines()
    headings = [line.rstrip(":") for line in lines if line.endswith(":") and not line.startswith(" ")]
    listed = [line.split()[0] for line in lines if line.startswith("  ") and line[2:3].islower()]

    assert headings == ["Options", *SECTIONS.values(), "Agents and projects"]
    assert sorted(name for name in listed if name in (*COMMANDS, *GUESTS)) == sorted((*COMMANDS, *GUESTS))
    assert set(SECTIONS) <= set(COMMANDS)


@pytest.mark.slow
def test_usage_names_arguments_and_values_by_words(helps: dict[str, str], user: User) -> None:
    usage = {name: text.splitlines()[0] for name, text in helps.items()}
    missing = user.types("queue", "decide", "one").stderr

    assert [name for name, line in usage.items() if "{" in line or "[[" in line] == []
    assert [name for name, text in helps.items() if "<str>" in text or "list[" in text or " range>" in text] == []
    assert usage["call"].endswith(" call [OPTIONS] TOOL [k=v …]")
    assert usage["import"].endswith(" import [OPTIONS] [CLIENT …]")
    assert "'OUTCOME'" in missing
    assert "whose steps become tasks" in " ".join(helps["queue"].split())


@pytest.mark.slow
def test_every_command_explains_itself(helps: dict[str, str]) -> None:
    assert [name for name in (*COMMANDS, *GUESTS) if not helps[name].startswith("Usage: ")] == []


@pytest.mark.slow
def test_every_action_has_a_help_with_its_own_options_only(helps: dict[str, str]) -> None:
    options = {
        name: {
            line.split()[0].rstrip(",")
            for line in text.partition("\nOptions:")[2].partition("\nActions:")[0].splitlines()
            if line.startswith("  -")
        }
        for name, text in helps.items()
    }
    groups = {name.split()[0] for name in helps if " " in name}

    assert {
        "approvals",
        "jobs",
        "log",
        "pending",
        "plugin",
        "policy",
        "profile",
        "results",
        "secret",
        "shadow",
    } <= groups
    assert {frozenset(options[name]) for name in groups} == {frozenset({"-h"})}
    assert options["results show"] == {"--offset", "-n", "--raw", "--principal", "-c", "--json", "-h"}
    assert options["results rm"] == {"--principal", "-c", "--json", "-h"}
    assert options["policy import"] == {"--dry-run", "--trust", "--json", "-h"}


@pytest.mark.slow
def test_an_action_may_stand_behind_its_options_and_the_default_needs_no_name(user: User) -> None:
    for group in ("approvals", "jobs", "log", "pending", "results", "secret"):
        plain, named, behind = (
            user.types(group, *words) for words in (["--json"], ["list", "--json"], ["--json", "list"])
        )
        assert (plain.exit_code, plain.stdout) == (0, "[]\n"), plain.output
        assert named.stdout == behind.stdout == plain.stdout


def test_every_help_fits_into_80_columns_and_lists_whole_sentences(helps: dict[str, str]) -> None:
    assert [(name, line) for name, text in helps.items() for line in text.splitlines() if len(line) > 80] == []
    assert [line for line in helps[""].splitlines() if line.endswith("...") and "[ARGS]" not in line] == []


def test_the_version_is_an_option_too(user: User) -> None:
    assert user.types("--version").stdout == user.types("version").stdout != ""
    assert user.reads("version") == {
        "version": version("toolcrib"),
        "python": platform.python_version(),
        "system": platform.system(),
    }


@pytest.mark.parametrize(
    ("word", "meant"),
    [("fnd", "find"), ("search", "find"), ("undo", "disconnect"), ("list", "tools"), ("status", "overview")],
)
def test_a_command_that_does_not_exist_gets_the_nearest(user: User, word: str, meant: str) -> None:
    result = user.types(word)

    assert result.exit_code == 2
    assert f"Did you mean '{meant}'?" in result.stderr


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
