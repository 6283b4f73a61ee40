"""What holds the cells of notebooks: the sandbox, the Python that they may use, and who has to be asked before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rig import eventually
from rig.sandbox import needs_sandbox, stands_still
from toolcrib.config.settings import ShellSpec, WorkspaceSpec
from toolcrib.core.context import Context
from toolcrib.core.permission import Answer, Question
from toolcrib_tools.notebook.kernels import interpreter_of
from unit.toolcrib_tools.notebooks import cell, session_of
from unit.toolcrib_tools.telling import error_of, text_of, told

pytestmark = [needs_sandbox, pytest.mark.process]


async def test_a_cell_sees_the_workspace_and_no_network_and_nobodys_home(folder: Path) -> None:
    (folder / ".env").write_text("KEY=value\n")
    code = (
        "import os, pathlib, socket\n"
        "def reaches():\n"
        "    try: socket.create_connection(('192.0.2.1', 80), 5); return True\n"
        "    except OSError: return False\n"
        "def reads():\n"
        "    try: return 'value' in open('.env').read()\n"
        "    except OSError: return False\n"
        "print(os.getcwd(), reaches(), reads(), repr(os.environ['CUDA_VISIBLE_DEVICES']))"
    )
    async with session_of(folder) as session:
        said = await cell(session, code)

    assert said == f"{folder} False False ''"


async def test_what_a_cell_may_not_make_is_put_aside_and_its_answer_says_so(folder: Path) -> None:
    async with session_of(folder) as session:
        said = await cell(session, "_ = open('.envrc', 'w').write('evil')")

    assert said.splitlines()[0] == f"[put aside, for commands may not make it: {folder}/.envrc.aside]"
    assert sorted(path.name for path in folder.iterdir()) == [".envrc.aside"]


async def test_changes_that_wait_for_review_are_told_to_a_cell_that_does_not_see_them(folder: Path) -> None:
    async def approve(question: Question) -> Answer:
        return Answer(verdict="yes")

    (folder / "a.txt").write_text("old")
    async with session_of(folder, mode="review") as session:
        session.state.approvals.approver = approve
        await session.call("write_file", {"path": "a.txt", "content": "new"})
        said = await cell(session, "open('a.txt').read()")

    assert said == "'old'\n[changes that wait for review are not on the disk: the cell did not see them]"


async def test_the_backends_are_what_is_really_here(folder: Path) -> None:
    async with session_of(folder) as session:
        seen = await told(session, "notebook_backends")
        code, message = await error_of(session, "notebook_create", name="big", gpu=True)

    assert {"kernel": "python3", "language": "python", "title": "Python 3 (ipykernel)"} in seen["kernels"]
    assert (seen["python"], seen["sandbox"], seen["network"], seen["gpus"]) == (sys.executable, "bubblewrap", False, [])
    assert (code, message) == ("unavailable", f"gpu: {seen['gpu']}")


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("python3", "the setting tools.notebook.python names no program by its whole path: 'python3'"),
        ("/nowhere/bin/python", "the setting tools.notebook.python names no program by its whole path"),
        ("/bin/cat", "the kernel did not start: "),
    ],
)
async def test_a_python_that_cannot_run_notebooks_is_named(folder: Path, python: str, message: str) -> None:
    async with session_of(folder, tools={"notebook": {"python": python}}) as session:
        code, said = await error_of(session, "notebook_execute", code="1")

    assert (code, said.startswith(message)) == ("unavailable", True), said


async def test_a_python_in_the_workspace_shows_nothing_outside_of_it(folder: Path, tmp_path: Path) -> None:
    private = tmp_path / "private" / "keys"
    private.mkdir(parents=True)
    (private / "key").write_text("secret")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(private / "key")

    async def shown(ctx: Context) -> str:
        return str(interpreter_of(ctx).readable)

    async with session_of(folder, tools={"notebook": {"python": str(folder / "bin" / "python")}}) as session:
        session.parts.tools.add(shown)

        assert await text_of(session, "shown") == "()"


async def test_the_python_of_the_configuration_runs_the_cells(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "bin").mkdir(parents=True)
    (own / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (own / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    packages = own / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    theirs = Path(sys.prefix) / packages.relative_to(own)
    (packages / "theirs.pth").write_text(f"{theirs}\n")
    (packages / "only_here.py").write_text("NAME = 'only here'\n")
    spec = WorkspaceSpec(roots=(folder, theirs))
    async with session_of(
        folder, workspace=spec, tools={"notebook": {"python": str(own / "bin" / "python")}}
    ) as session:
        said = await cell(session, "import only_here\nonly_here.NAME")

    assert said == "'only here'"


# Who is asked


async def asked_of(folder: Path, code: str, mode: str = "autonomous", **rules: list[str]) -> list[str]:
    """Return the rules that had the user asked for a cell, who says no."""
    asked: list[str] = []

    async def deny(question: Question) -> Answer:
        asked.append(question.decision.rule)
        return Answer(verdict="no")

    async with session_of(folder, mode=mode, rules=rules) as session:
        session.state.approvals.approver = deny
        await session.call("notebook_execute", {"code": code})
    return asked


@pytest.mark.parametrize("code", ["!rm -rf data", "%%bash\nrm -rf data", "import os\nos.system('rm -rf data')"])
async def test_a_cell_with_a_command_that_cannot_be_taken_back_asks_in_every_mode(folder: Path, code: str) -> None:
    assert await asked_of(folder, code) == ["irrecoverable: rm -rf asks in every mode"]


async def test_a_cell_asks_where_a_command_does(folder: Path) -> None:
    assert await asked_of(folder, "1 + 1", mode="cautious") == ["mode cautious: a destructive tool is asked for"]


async def test_without_a_sandbox_every_cell_asks_and_all_of_it_ends_with_the_session(
    folder: Path, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "sh", "date", "sleep"):
        (programs / name).symlink_to(f"/bin/{name}")
    smi = programs / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'Test Card, 24 GiB'\n")
    smi.chmod(0o755)
    asked: list[str] = []

    async def approve(question: Question) -> Answer:
        asked.append(question.tool.name)
        return Answer(verdict="yes")

    environment = {"PATH": str(programs), "HOME": str(tmp_path)}
    loop = "while :; do date +%s.%N > alive; sleep 0.05; done"
    async with session_of(folder, shell=ShellSpec(unsandboxed=True), environment=environment) as session:
        session.state.approvals.approver = approve
        seen = await told(session, "notebook_backends")
        hidden = await cell(session, "import os\nos.environ['CUDA_VISIBLE_DEVICES']")
        await text_of(session, "notebook_create", name="gpu", gpu=True)
        shown = await cell(session, "import os\n'CUDA_VISIBLE_DEVICES' in os.environ")
        await cell(session, f"import subprocess\nsubprocess.Popen(['bash', '-c', {loop!r}]);")
        await eventually((folder / "alive").exists)

    assert (seen["sandbox"], seen["gpus"], hidden, shown) == ("none", ["Test Card, 24 GiB"], "''", "False")
    assert asked == ["notebook_execute", "notebook_create", "notebook_execute", "notebook_execute"]
    await stands_still(folder / "alive")
