"""A day with the queue: tasks are put in, agents work alone, and a person comes back to what they did."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner

from rig.sandbox import needs_sandbox
from seeds.inventory import git
from toolcrib import Toolcrib
from toolcrib.cli.main import app
from toolcrib.core.session import LOCAL
from unit.toolcrib_queue.conftest import CATEGORIES, Person, person

pytestmark = [needs_sandbox, pytest.mark.process, pytest.mark.long]

AGENT = """
    import json, os, re, sys
    from pathlib import Path

    prompt, is_codex = sys.argv[-1], sys.argv[1] == "exec"
    title, said = prompt.partition("\\n")[0].removeprefix("# "), "It is done."
    prices = Path("price.sh")
    if title == "Fix gross":
        prices.write_text(prices.read_text().replace("TAX / 10 ", "TAX / 100 "))
    elif title == "Fix total":
        prices.write_text(prices.read_text().replace("echo 0", 'gross "$(( $1 + $2 ))"'))
    elif title == "Paint the sign":
        colour = re.search("Which colour\\\\?: (\\\\w+)", prompt)
        if colour:
            Path("sign.txt").write_text(colour[1])
        else:
            said = "I have brushes.\\nQUESTION: Which colour?"
    elif title == "Raise the prices":
        Path("list.txt").write_text("boat 120\\n")
    elif title.startswith("Hook: "):
        Path("findings.txt").write_text(prompt)
    if is_codex:
        print(json.dumps({"type": "item.completed", "item": {"type": "agent_message", "text": said}}))
        print(json.dumps({"type": "turn.completed", "usage": {"input_tokens": 20, "output_tokens": 5}}))
    else:
        print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": said,
                          "usage": {"input_tokens": 20, "output_tokens": 5}}))
"""
"""Program of an agent that does what a title says, but not `Mend the crane`, of which it says that it is done."""
PRICES = """\
TAX=19
gross() { echo $(( $1 + $1 * TAX / 10 )); }
total() { echo 0; }
"""
TESTS = """\
. ./price.sh
case "$1" in
gross) test "$(gross 100)" = 119 ;;
total) test "$(total 100 200)" = 357 ;;
*) sh test.sh gross && sh test.sh total ;;
esac
"""

Typed = Callable[..., Any]


NAMES = ("gross", "total", "sign", "list", "crane")


def listed(typed: Typed) -> dict[str, str]:
    """Return the status of each task."""
    return {task["id"]: task["status"] for task in json.loads(typed("--all", "--json"))["tasks"]}


def green(name: str) -> list[dict[str, str]]:
    """Evidence of a repaired function: its test passes, and nobody changed the tests."""
    return [{"type": "command", "command": f"sh test.sh {name}"}, {"type": "unchanged", "path": "test.sh"}]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a user, who has a repository with failing tests and the programs of two types of agents."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    program, shop = tmp_path / "programs" / "agent.py", tmp_path / "shop"
    program.parent.mkdir()
    program.write_text(dedent(AGENT))
    shop.mkdir()
    (shop / "price.sh").write_text(PRICES)
    (shop / "test.sh").write_text(TESTS)
    git(shop, "init", "--quiet", "--initial-branch=main")
    git(shop, "add", ".")
    git(shop, "commit", "--quiet", "-m", "Begin")
    agents = {name: {"program": [sys.executable, str(program)]} for name in ("claude", "codex")}
    config = {"builtins": [*CATEGORIES], "workspace": ".", "tools": {"queue": {"agents": agents}}}
    (tmp_path / "queue.yaml").write_text(json.dumps(config))
    return tmp_path


@pytest.fixture
def typed(home: Path) -> Typed:
    """Return the command line of that user."""

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, ["queue", *words, "--config", "queue.yaml"])
        assert done.exit_code == 0, done.output
        return str(done.stdout)

    return run


def asked(home: Path, work: Callable[[Person], Any]) -> Any:
    """Return what comes of a few calls that the user's model makes."""

    async def run() -> Any:
        store = home / "XDG_DATA_HOME" / "toolcrib" / "toolcrib.db"
        async with Toolcrib("queue.yaml", store=store) as crib:
            return await work(person(crib, LOCAL, home))

    return anyio.run(run)


async def morning(user: Person) -> dict[str, str]:
    """Make a project of the repository with two workspaces, two agents, five tasks and a hook; return the ids."""
    made = await user.ok("create_project", name="Shop", repo_url=str(Path.cwd() / "shop"))
    shop = made["project_id"]
    one, _ = [
        (await user.ok("add_workspace", project_id=shop, source="clone", path=path))["created"]
        for path in ("one", "two")
    ]
    await user.ok("create_profile", id="plain", name="Plain", model="small", system_prompt_suffix="Keep it short.")
    await user.ok("edit_project", project_id=shop, default_profile_id="plain")
    for name, type in (("Ann", "claude"), ("Bo", "codex")):
        await user.ok("create_agent", name=name, agent_type=type)
    await user.ok(
        "create_hook",
        project_id=shop,
        name="Look at failures",
        trigger={"type": "event", "event_type": "task.failed"},
        prompt_template="{{event.title}} failed: {{event.error_message}}",
    )
    active = await user.ok("set_active_project", project_id=shop)
    status = await user.session.call("git_log")
    assert (Path(active["repo"]).name, status.is_error) == ("one", False), "git tools work in the active project"
    ids = {"gross": await user.task("Fix gross", priority=1, acceptance=green("gross"), preferred_workspace_id=one)}
    ids["total"] = await user.task(
        "Fix total", acceptance=green("total"), depends_on=[ids["gross"]], preferred_workspace_id=one
    )
    ids["sign"] = await user.task("Paint the sign", acceptance=[{"type": "changed", "path": "sign.txt"}])
    ids["list"] = await user.task("Raise the prices", requires_approval=True)
    ids["crane"] = await user.task("Mend the crane", acceptance=[{"type": "commit"}], max_retries=1)
    return {**ids, "project": shop}


def test_a_person_puts_tasks_in_walks_away_and_comes_back(home: Path, typed: Typed) -> None:
    ids = asked(home, morning)
    typed("work", "--once", "--yes")
    table = typed()
    shown = listed(typed)

    assert {name: shown[ids[name]] for name in NAMES} == {
        "gross": "COMPLETED",
        "total": "COMPLETED",
        "sign": "WAITING_INPUT",
        "list": "AWAITING_APPROVAL",
        "crane": "BLOCKED",
    }
    assert f"{ids['sign']} asks: Which colour?" in table
    # A task that begins later in the other clone takes the newest default branch along, so that both may have it.
    done, *_ = [folder for folder in (home / "one", home / "two") if "Fix total" in subjects(folder)]
    assert [one for one in subjects(done) if not one.startswith("Hook: ")] == ["Begin", "Fix gross", "Fix total"]
    git(done, "checkout", "--quiet", "main")
    subprocess.run(["sh", "test.sh"], cwd=done, check=True)

    error, diff = asked(home, partial(noon, ids))
    assert (error["retries"], error["error_message"]) == (
        "1 / 1",
        f"task {ids['crane']} is not shown to be done: commit",
    )
    assert [line for line in diff["diff"].splitlines() if line.startswith(("+", "-"))] == [
        "--- /dev/null",
        "+++ b/list.txt",
        "+boat 120",
    ]

    typed("answer", ids["sign"], "blue", "--yes")
    typed("approve", ids["list"], "--yes")
    typed("work", "--once", "--yes")

    events, usage, text = asked(home, partial(evening, ids))
    assert set(listed(typed).values()) == {"COMPLETED"}
    assert "blue" in {git(folder, "show", "main:sign.txt") for folder in places_with(home, "sign.txt")}
    assert {type for type, _ in events} == {
        "git.commit",
        "project.created",
        "task.created",
        "task.started",
        "task.waiting_input",
        "task.failed",
        "task.blocked",
        "task.completed",
    }
    assert events.count(("task.completed", "Hook: Look at failures")) == 1, "the second one came in its cooldown"
    assert usage["total"] == 25 * sum(type == "task.started" for type, _ in events) + 25, "the answered run counts too"
    assert "- Paint the sign: completed. It is done." in text


def subjects(folder: Path) -> list[str]:
    """Return the subjects of the commits on the default branch, oldest first, without merges."""
    return git(folder, "log", "--format=%s", "--no-merges", "--reverse", "main").splitlines()


def places_with(home: Path, name: str) -> list[Path]:
    """Return the clones whose default branch has a file."""
    return [home / one for one in ("one", "two") if name in git(home / one, "ls-tree", "--name-only", "main").split()]


async def noon(ids: Mapping[str, str], user: Person) -> tuple[Any, Any]:
    """Look at the failed task, and at what waits for approval."""
    error = await user.ok("get_agent_error", task_id=ids["crane"])
    return error, await user.ok("get_task_diff", task_id=ids["list"])


async def evening(ids: Mapping[str, str], user: Person) -> tuple[list[tuple[str, str]], Any, str]:
    """Give the crane up, and read the record of the day."""
    await user.ok("skip_task", task_id=ids["crane"])
    events = (await user.ok("queue_events", project_id=ids["project"], limit=200))["events"]
    usage = await user.ok("queue_usage", project_id=ids["project"])
    primer = await user.ok("prime", project_id=ids["project"], max_tokens=1000)
    return [(one["type"], one["title"]) for one in events], usage, primer["text"]
