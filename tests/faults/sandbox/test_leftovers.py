"""What a command leaves behind: files that other programs start or believe are put aside, and ordinary work goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import anyio
import pytest

from rig import PATIENCE
from rig.sandbox import Outcome, needs_sandbox
from toolcrib.core.sandbox import Command
from toolcrib.sandbox import protected_paths
from toolcrib.sandbox.comparison import Comparison
from toolcrib.sandbox.detection import Unsandboxed, find_sandbox
from toolcrib.sandbox.leftovers import harmless_config
from toolcrib.sandbox.protected_paths import Repositories
from toolcrib.workspace.git import is_from_commit
from toolcrib_tools.shell.processes import notes_of

pytestmark = [needs_sandbox, pytest.mark.process]

CANARY = "owned"
PERSON = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_COMMITTER_NAME": "a",
    "EMAIL": "a@b",
    "GIT_EDITOR": "true",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository with one commit."""
    made = tmp_path / "work"
    made.mkdir()
    git(made, "init", "-q", "-b", "main")
    (made / "a").write_text("a\n")
    commit(made)
    return made


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env={**os.environ, **PERSON}, check=False, capture_output=True, text=True
    )
    return done.stdout


def commit(folder: Path, message: str = "first") -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)


async def run(folder: Path, *texts: str, alone: bool = True) -> Outcome:
    """Run commands, one after the other; return what the last one came to, with all that was put aside.

    `alone`: in the sandbox of this machine.
    """
    comparison = Comparison(brought=partial(is_from_commit, path=os.environ["PATH"]))
    sandbox, why = find_sandbox(os.environ, comparison=comparison)
    if not alone:
        sandbox = Unsandboxed(environ=os.environ, comparison=comparison)
    assert sandbox is not None, why
    aside: list[str] = []
    text, finished = "", None
    for one in texts:
        argv = ("/bin/bash", "-c", one)
        command = Command(argv=argv, cwd=folder, folders=(folder,), environment=PERSON)
        with anyio.fail_after(PATIENCE):
            async with sandbox.open(command) as running:
                await running.close_input()
                pieces: list[bytes] = []
                while piece := await running.read():
                    pieces.append(piece[1])
                finished = await running.wait()
        text = b"".join(pieces).decode("utf-8", "replace")
        aside += running.aside
    assert finished is not None
    return Outcome(finished=finished, text=text, aside=tuple(aside), refused=())


LEFT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "direnv": ("mkdir -p d/e && echo x > d/e/.envrc", ("d/e/.envrc",)),
    "names in another case": (
        (
            "mkdir -p d/.VSCode .Claude .GitHub/workflows; echo x | tee .ENVRC d/.Mcp.json d/.VSCode/tasks.JSON"
            " .Claude/x .GitHub/workflows/x.yml agents.md > /dev/null"
        ),
        (".Claude/x", ".ENVRC", ".GitHub/workflows/x.yml", "d/.Mcp.json", "d/.VSCode/tasks.JSON"),
    ),
    "servers": ("mkdir d && echo {} > d/.mcp.json", ("d/.mcp.json",)),
    "task": (
        'mkdir -p d/.vscode && echo \'{"runOptions": {"runOn": "folderOpen"}}\' > d/.vscode/tasks.json',
        ("d/.vscode/tasks.json",),
    ),
    "settings": (
        'mkdir -p d/.vscode && echo \'{"git.path": "/tmp/x"}\' > d/.vscode/settings.json',
        ("d/.vscode/settings.json",),
    ),
    "agents": ("echo x > AGENTS.md; mkdir d; echo x > d/CLAUDE.md", ("AGENTS.md", "d/CLAUDE.md")),
    "agents of 2026": (
        "mkdir -p .amp .kilo .github/copilot; echo x | tee .amp/a .kilo/a replit.md .github/copilot/mcp.json",
        (".amp/a", ".github/copilot/mcp.json", ".kilo/a", "replit.md"),
    ),
    "link": ("echo x > y; ln -s y CLAUDE.md", ("CLAUDE.md",)),
    "settings of an editor behind a comment": (
        'mkdir -p d/.vscode && echo \'{"git.path"/* x */: "/tmp/x"}\' > d/.vscode/settings.json',
        ("d/.vscode/settings.json",),
    ),
    "pipelines of forges": (
        "for f in bitbucket-pipelines.yml .gitlab-ci.yml .woodpecker.yaml; do echo 'x: 1' > $f; done",
        (".gitlab-ci.yml", ".woodpecker.yaml", "bitbucket-pipelines.yml"),
    ),
    "tasks of workspaces in the browser": (
        "mkdir .codesandbox && echo {} > .codesandbox/tasks.json; echo {} > .stackblitzrc; echo x > devfile.yaml",
        (".codesandbox/tasks.json", ".stackblitzrc", "devfile.yaml"),
    ),
    "instructions of further agents": ("echo x > CRUSH.md; echo x > IFLOW.md", ("CRUSH.md", "IFLOW.md")),
    "hook of an agent": ("mkdir -p d/.claude && echo {} > d/.claude/settings.json", ("d/.claude/settings.json",)),
    "folder of an agent as a link": ("mkdir x && echo {} > x/settings.json && ln -s x .claude", (".claude",)),
    "other repositories": (
        "mkdir -p d/.hg .jj/repo _darcs/prefs; echo x | tee d/.hg/hgrc .jj/repo/config.toml > _darcs/prefs/defaults",
        (".jj/repo/config.toml", "_darcs/prefs/defaults", "d/.hg/hgrc"),
    ),
    "debuggers": (
        "mkdir e; for f in .pdbrc .byebugrc .ocamlinit .gdbinit .dir-locals.el; do echo x > e/$f; done",
        ("e/.byebugrc", "e/.dir-locals.el", "e/.gdbinit", "e/.ocamlinit", "e/.pdbrc"),
    ),
    "other editors and agents": (
        "mkdir -p .helix .agents .nova e; echo x | tee .helix/x .agents/x .nova/x e/{opencode.json,.vimrc,.Rprofile}",
        (".agents/x", ".helix/x", ".nova/x", "e/.Rprofile", "e/.vimrc", "e/opencode.json"),
    ),
    "parts of a forge": (
        "mkdir -p .github/actions/a .github/agents; echo x | tee .github/actions/a/action.yml > .github/agents/a.md",
        (".github/actions/a/action.yml", ".github/agents/a.md"),
    ),
    "workflow": ("mkdir -p .github/workflows && echo x > .github/workflows/x.yml", (".github/workflows/x.yml",)),
    "rules": ("mkdir -p d/.cursor/rules && echo x > d/.cursor/rules/a.mdc", ("d/.cursor/rules/a.mdc",)),
    "configuration": (f"git init -q d && git -C d config core.fsmonitor 'touch {CANARY}'", ("d/.git/config",)),
    "files elsewhere": ("git init -q d && git -C d config core.worktree ../..", ("d/.git/config",)),
    "included configuration": ("git init -q d && git -C d config include.path ../x", ("d/.git/config",)),
    "hook": ("git init -q d && echo x > d/.git/hooks/post-checkout", ("d/.git/hooks/post-checkout",)),
    "attributes": ("git init -q d && echo x > d/.git/info/attributes", ("d/.git/info/attributes",)),
    "bare": ("git init -q --bare d && git -C d config core.pager x", ("d/config",)),
    "common folder": (
        "git init -q d && mkdir e && cp d/.git/HEAD e/ && echo ../d/.git > e/commondir",
        ("e/commondir",),
    ),
    "committed by the command": ("echo x > AGENTS.md; git add .; git commit -qm x", ("AGENTS.md",)),
    "committed before, brought later": (
        "echo x > AGENTS.md; git add .; git commit -qm x\ngit checkout -q AGENTS.md",
        ("AGENTS.md", "AGENTS.md"),
    ),
    "pipes": (
        "git init -q d; rm d/.git/config; mkdir -p e/.vscode f; mkfifo d/.git/config AGENTS.md e/.vscode/settings.json",
        ("AGENTS.md", "d/.git/config", "e/.vscode/settings.json"),
    ),
    "a file with holes": ("truncate -s 1T AGENTS.md", ("AGENTS.md",)),
    "behind names of a bare repository": (
        (
            "mkdir -p d/objects d/refs d/e; cp .git/HEAD d; echo x > d/e/.envrc;"
            " git init -q d/x; git -C d/x config core.pager x"
        ),
        ("d/e/.envrc", "d/x/.git/config"),
    ),
    "in a folder with a name of Python's": (
        "git init -q venv/x; git -C venv/x config core.pager x; mkdir __pycache__; echo x > __pycache__/AGENTS.md",
        ("__pycache__/AGENTS.md", "venv/x/.git/config"),
    ),
    "in the own repository": (
        (
            "mkdir d; git init -q --bare .git/refs/x; git -C .git/refs/x config core.pager x;"
            " echo gitdir: ../.git/refs/x > d/.git"
        ),
        (".git/refs/x/config",),
    ),
    "in a folder of packages": (
        "git init -q node_modules && git -C node_modules config core.pager x",
        ("node_modules/.git/config",),
    ),
}


@pytest.mark.parametrize("alone", [True, False], ids=["sandboxed", "unsandboxed"])
@pytest.mark.parametrize(("text", "files"), LEFT.values(), ids=LEFT)
async def test_what_another_program_takes_up_is_put_aside(
    work: Path, text: str, files: tuple[str, ...], alone: bool
) -> None:
    outcome = await run(work, *text.split("\n"), alone=alone)

    names = [name.removesuffix("2") for name in outcome.aside]
    assert sorted(names) == sorted(f"{work / file}.aside" for file in files)
    for folder in {(work / file).parent for file in files}:
        git(folder, "status")
        assert not list(work.rglob(CANARY))


async def test_a_root_without_a_repository_does_not_become_one_that_starts_programs(tmp_path: Path) -> None:
    text = f"git init -q --bare .; git config core.fsmonitor 'touch {CANARY}'; git config core.bare false"

    outcome = await run(tmp_path, f"{text}; git config core.worktree .")

    assert outcome.aside == (f"{tmp_path}/config.aside",)
    git(tmp_path, "status")
    assert not list(tmp_path.rglob(CANARY))


HIDDEN = f"mkdir -p d/objects d/refs; cp .git/config d/; git config -f d/config core.fsmonitor 'touch {CANARY}'"
"""A folder that is a repository only where another one's `commondir` names it."""
BY_HAND = (
    "mkdir -p tree .git/worktrees/tree; cp .git/HEAD .git/worktrees/tree/;"
    " echo $PWD/tree/.git > .git/worktrees/tree/gitdir; echo gitdir: $PWD/.git/worktrees/tree > tree/.git"
)


@pytest.mark.parametrize("alone", [True, False], ids=["sandboxed", "unsandboxed"])
@pytest.mark.parametrize("text", ["git worktree add -q tree", BY_HAND], ids=["by git", "by hand"])
async def test_a_new_worktree_of_the_own_repository_reads_no_other_configuration(
    work: Path, text: str, alone: bool
) -> None:
    outcome = await run(work, f"{HIDDEN}; {text}; echo $PWD/d > .git/worktrees/tree/commondir", alone=alone)

    assert outcome.aside == (f"{work}/.git/worktrees/tree/commondir.aside",)
    git(work / "tree", "status")
    assert not list(work.rglob(CANARY))


FOLDER_PREFIX: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "configuration": (f"git config core.fsmonitor 'touch {CANARY}'", (".git/config",)),
    "alias": ("git config alias.st '!touch x'", (".git/config",)),
    "configuration as a link": (
        "printf '[core]\n\tpager = evil\n' > '.git/#x'; ln -sf '#x' .git/config",
        (".git/config",),
    ),
    "changed value": ("git config core.pager evil", (".git/config",)),
    "configuration of a worktree": (
        "git config core.pager x; mv .git/config .git/config.worktree",
        (".git/config.worktree",),
    ),
    "hook": ("echo x > .git/hooks/post-checkout", (".git/hooks/post-checkout",)),
    "changed hook": ("echo x > .git/hooks/pre-commit", (".git/hooks/pre-commit",)),
    "a hook that could not run": ("chmod +x .git/hooks/pre-push", (".git/hooks/pre-push",)),
    "hooks as a link": ("mkdir h; rm -r .git/hooks; ln -s ../h .git/hooks", (".git/hooks",)),
    "attributes": ("mkdir -p .git/info; echo x > .git/info/attributes", (".git/info/attributes",)),
    "another repository": ("git init -q d; rm -r .git; echo gitdir: d/.git > .git", (".git",)),
    "a link to another one": ("git init -q d; rm -r .git; ln -s d/.git .git", (".git",)),
    "a submodule": (
        "git init -q --bare .git/modules/m; echo x > .git/modules/m/hooks/post-checkout",
        (".git/modules/m/hooks/post-checkout",),
    ),
    "a new repository in its place": (
        f"rm -r .git; git init -q; git config core.fsmonitor 'touch {CANARY}'",
        (".git/config",),
    ),
}


LINKS: Mapping[str, str] = {
    "a rebase": "ln -s {other}/rebase-merge .git/rebase-merge",
    "attributes": "git init -q d; rm -rf d/.git/info; ln -s {other}/info d/.git/info",
    "attributes of its own": "rm -rf .git/info; ln -s {other}/info .git/info",
    "hooks": "git init -q d; rm -rf d/.git/hooks; ln -s {other}/hooks d/.git/hooks",
    "submodules": "git init -q d; ln -s {other}/.. d/.git/modules",
    "worktrees": "git init -q d; ln -s {other}/.. d/.git/worktrees",
    "worktrees of its own": "rm -rf .git/worktrees; ln -s {other}/.. .git/worktrees",
    "submodules of its own": "rm -rf .git/modules; ln -s {other}/.. .git/modules",
    "one worktree": "mkdir -p .git/worktrees; ln -s {other} .git/worktrees/x",
    "parts of a nested one": (
        "git init -q d; for k in modules worktrees; do mkdir d/.git/$k; ln -s {other} d/.git/$k/x; done"
    ),
}


@pytest.mark.parametrize("alone", [True, False], ids=["sandboxed", "unsandboxed"])
@pytest.mark.parametrize("text", LINKS.values(), ids=LINKS)
async def test_a_link_makes_us_change_nothing_in_a_repository_outside_of_the_workspace(
    work: Path, tmp_path: Path, text: str, alone: bool
) -> None:
    other = tmp_path / "other"
    shutil.copytree(work, other)
    git(other, "config", "core.pager", "less -X")
    for name in ("hooks/pre-commit", "info/attributes", "rebase-merge/git-rebase-todo"):
        (other / ".git" / name).parent.mkdir(exist_ok=True)
        (other / ".git" / name).write_text("exec true\n")
    before = contents(other)

    await run(work, text.format(other=other / ".git"), alone=alone)

    assert contents(other) == before


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the contents of all files below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("alone", [True, False], ids=["sandboxed", "unsandboxed"])
async def test_a_rebase_that_stopped_at_its_last_step_goes_on_after_a_command(work: Path, alone: bool) -> None:
    (work / "a").write_text("b\n")
    commit(work, "second")
    stop = {**os.environ, **PERSON, "GIT_SEQUENCE_EDITOR": "sed -i 1s/pick/edit/"}
    subprocess.run(["git", "rebase", "-q", "-i", "HEAD~1"], cwd=work, env=stop, check=True, capture_output=True)

    outcome = await run(work, "git status", alone=alone)

    assert outcome.aside == ()
    git(work, "rebase", "--continue")
    assert not (work / ".git" / "rebase-merge").exists()


@pytest.mark.parametrize(("text", "files"), FOLDER_PREFIX.values(), ids=FOLDER_PREFIX)
async def test_the_own_repository_of_an_unsandboxed_command_gets_its_earlier_configuration_back(
    work: Path, text: str, files: tuple[str, ...]
) -> None:
    git(work, "config", "core.pager", "less")
    (work / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\n")
    (work / ".git" / "hooks" / "pre-push").write_text("#!/bin/sh\n")
    before = {name: (work / ".git" / name).read_text() for name in ("config", "hooks/pre-commit")}

    outcome = await run(work, text, alone=False)

    assert sorted(outcome.aside) == sorted(f"{work / file}.aside" for file in files)
    git(work, "status")
    assert not list(work.rglob(CANARY))
    kept = {name: (work / ".git" / name).read_text() for name in before if (work / ".git" / name).exists()}
    assert all(text == before[name] for name, text in kept.items())


REBASES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "steps that run": (
        f"sed -i '1i exec touch {CANARY}' .git/rebase-merge/git-rebase-todo",
        (".git/rebase-merge/git-rebase-todo",),
    ),
    "a step in short": (
        f"echo 'x touch {CANARY}' >> .git/rebase-merge/git-rebase-todo",
        (".git/rebase-merge/git-rebase-todo",),
    ),
    "a rebase of its own": (
        f"git rebase --abort; git rebase -q -x 'touch {CANARY}' topic; rm -f {CANARY}",
        (".git/rebase-merge/git-rebase-todo",),
    ),
    "a strategy": ("echo evil > .git/rebase-merge/strategy", (".git/rebase-merge/strategy",)),
    "in a worktree": (
        (
            "git rebase --abort; git worktree add -q tree main -f; cd tree; git rebase -q topic;"
            f" echo 'exec touch {CANARY}' >> ../.git/worktrees/tree/rebase-merge/git-rebase-todo"
        ),
        (".git/worktrees/tree/rebase-merge/git-rebase-todo",),
    ),
    "nothing": ("git status > /dev/null; git rebase --show-current-patch > /dev/null", ()),
}


@pytest.mark.parametrize("alone", [True, False], ids=["sandboxed", "unsandboxed"])
@pytest.mark.parametrize(("text", "files"), REBASES.values(), ids=REBASES)
async def test_going_on_with_a_rebase_runs_no_step_that_a_command_wrote(
    work: Path, text: str, files: tuple[str, ...], alone: bool
) -> None:
    for branch, content in (("topic", "b\n"), ("main", "c\n")):
        git(work, "checkout", "-q", *(["-b", branch] if branch == "topic" else [branch]))
        (work / "a").write_text(content)
        commit(work, branch)
    git(work, "rebase", "-q", "topic")
    own = work / ".git" / "rebase-merge" / "git-rebase-todo"
    own.write_text(f"{own.read_text()}exec touch own\n")

    outcome = await run(work, text, alone=alone)

    assert sorted(outcome.aside) == sorted(f"{work / file}.aside" for file in files)
    for folder in (work, work / "tree"):
        if folder.is_dir():
            (folder / "a").write_text("d\n")
            git(folder, "add", "a")
            git(folder, "rebase", "--continue")
    assert not list(work.rglob(CANARY))
    assert (work / "own").exists() == ("--abort" not in text)


@pytest.mark.parametrize(
    "text",
    [
        "git config user.name x && git remote add origin https://example.org/x && git checkout -q -b x",
        "rm .git/hooks/pre-commit && git config --unset core.pager",
        "git worktree add -q tree && git -C tree status",
        "git stash list; git gc -q; git commit -q --allow-empty -m x; git tag v1",
    ],
)
async def test_ordinary_work_on_the_own_repository_stays(work: Path, text: str) -> None:
    git(work, "config", "core.pager", "less")
    (work / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\n")

    outcome = await run(work, text, alone=False)

    assert (outcome.finished.status, outcome.aside) == (0, ())


async def test_a_changed_file_gets_its_earlier_content_back(work: Path) -> None:
    (work / "AGENTS.md").write_text("ours\n")
    (work / "d").mkdir()
    (work / "d" / ".envrc").write_text("ours\n")
    commit(work)

    outcome = await run(work, "echo evil >> AGENTS.md; sed -i s/ours/evil/ d/.envrc; git status --porcelain")

    assert (work / "AGENTS.md").read_text() == "ours\n"
    assert (work / "d" / ".envrc").read_text() == "ours\n"
    assert outcome.aside == (f"{work}/AGENTS.md.aside", f"{work}/d/.envrc.aside")
    assert "evil" in (work / "AGENTS.md.aside").read_text()


async def test_what_a_person_gives_back_stays(work: Path) -> None:
    await run(work, "echo x > AGENTS.md")
    (work / "AGENTS.md.aside").rename(work / "AGENTS.md")

    outcome = await run(work, "cat AGENTS.md")

    assert (outcome.text, outcome.aside) == ("x\n", ())


def furnished(folder: Path) -> None:
    """Files of the repository's own that other programs take up, on two branches and in a remote."""
    (folder / "AGENTS.md").write_text("one\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "CLAUDE.md").write_text("one\n")
    (folder / ".github" / "workflows").mkdir(parents=True)
    (folder / ".github" / "workflows" / "ci.yml").write_text("one\n")
    commit(folder)
    git(folder, "checkout", "-qb", "topic")
    (folder / "AGENTS.md").write_text("two\n")
    (folder / "sub" / ".envrc").write_text("two\n")
    commit(folder, "second")
    git(folder, "checkout", "-q", "main")
    subprocess.run(["git", "clone", "-q", str(folder), str(folder.parent / "remote")], check=True)
    git(folder.parent / "remote", "checkout", "-q", "main")
    (folder.parent / "remote" / "AGENTS.md").write_text("three\n")
    commit(folder.parent / "remote", "third")
    shutil.move(folder.parent / "remote", folder / ".git" / "remote")
    git(folder, "remote", "add", "origin", str(folder / ".git" / "remote"))


SETUP_PY = 'printf \'[project]\\nname="p"\\nversion="1"\\n\' > pyproject.toml'
ORDINARY = (
    "git checkout -q topic",
    "git checkout -q topic && git checkout -q main",
    "git switch -q topic && cat AGENTS.md",
    "git restore --source topic AGENTS.md",
    "git merge -q topic",
    "git merge -q --no-ff topic",
    "git rebase -q topic",
    "git cherry-pick topic",
    "git pull -q origin main",
    "git fetch -q && git merge -q origin/main",
    "git pull -q --rebase origin main",
    "git rm -q AGENTS.md && git commit -qm x\ngit revert --no-edit HEAD",
    "rm AGENTS.md && git checkout AGENTS.md",
    "rm -r sub .github && git reset -q --hard",
    "echo b > b && git add b && git stash -q && git stash pop -q",
    "git stash -q -u\ngit stash list",
    "git worktree add -q tree topic && git -C tree status --porcelain",
    "git init -q d && git -C d status",
    "git init -q d && cd d && echo x > x && git add x && git commit -qm x\ngit -C d log --oneline",
    "git clone -q .git d\ngit -C d log --oneline && git -C d remote -v",
    "git clone -q --bare .git d.git\ngit -C d.git log --oneline",
    "git clone -q .git d && cd d && git checkout -q -b x && git config branch.x.remote origin\ngit -C d status",
    "mkdir -p node_modules/.bin node_modules/p/.github/workflows && touch node_modules/.bin/p node_modules/p/AGENTS.md",
    "python3 -m venv --without-pip .venv\n.venv/bin/python -c 1",
    "python3 -m venv --without-pip venv && venv/bin/python -c 1",
    f"{SETUP_PY}\ncat pyproject.toml",
    "printf 'all:\\n\\techo x > out\\n' > Makefile && make -s && cat out",
    "mkdir -p target/debug && echo '[package]' > Cargo.toml && echo x > Cargo.lock",
    "echo 'repos: []' > .pre-commit-config.yaml && git add -A && git commit -qm x",
    "mkdir .vscode && echo '{\"recommendations\": []}' > .vscode/extensions.json",
    "mkdir -p d/.hg && printf '[paths]\\ndefault = https://example.org/d\\n' > d/.hg/hgrc && cat d/.hg/hgrc",
    "echo 'source(\"renv/activate.R\")' > .Rprofile && cat .Rprofile",
    "mkdir .vscode && echo '{\"editor.formatOnSave\": true}' > .vscode/settings.json",
    "mkdir -p .github && echo x > .github/dependabot.yml && echo x > README.md && echo '* text=auto' > .gitattributes",
    "git tag v1 && git gc -q && git checkout -q topic",
)


@pytest.mark.parametrize("text", ORDINARY)
async def test_an_ordinary_sequence_of_commands_goes_as_it_does_without_us(tmp_path: Path, text: str) -> None:
    states: list[tuple[str, list[str]]] = []
    for place in ("with", "without"):
        folder = tmp_path / place / "work"
        folder.mkdir(parents=True)
        git(folder, "init", "-q", "-b", "main")
        furnished(folder)
        if place == "with":
            outcome = await run(folder, *text.split("\n"))
            assert outcome.finished.status == 0, outcome.text
            assert outcome.aside == ()
        else:
            environment = {
                **os.environ,
                "GIT_AUTHOR_NAME": "a",
                "GIT_COMMITTER_NAME": "a",
                "EMAIL": "a@b",
                "GIT_EDITOR": "true",
            }
            for one in text.split("\n"):
                subprocess.run(["/bin/bash", "-c", one], cwd=folder, env=environment, check=True, capture_output=True)
        status = git(folder, "status", "--porcelain", "-uall", "--", ":!.venv", ":!venv")
        files = sorted(str(path.relative_to(folder)) for path in folder.glob("**/*.md"))
        states.append((status, files))

    assert states[0] == states[1]


VERSIONS: Mapping[str, tuple[str, str, str]] = {
    "conflict": ("one\n", "two\n", "three\n"),
    "two conflicts": ("1\na\nb\nc\nd\n2\n", "x\na\nb\nc\nd\ny\n", "v\na\nb\nc\nd\nw\n"),
    "no conflict": ("1\na\nb\nc\n2\n", "x\na\nb\nc\n2\n", "1\na\nb\nc\ny\n"),
}
MERGES: Mapping[str, str] = {
    "merge": "git merge -q topic",
    "diff3": "git -c merge.conflictStyle=diff3 merge -q topic",
    "zdiff3": "git -c merge.conflictStyle=zdiff3 merge -q topic",
    "another branch": "git checkout -q topic && git merge -q main",
}


def diverged(folder: Path, base: str, ours: str, theirs: str) -> None:
    """Commit three versions of AGENTS.md: the base, one on `main` and one on `topic`."""
    (folder / "AGENTS.md").write_text(base)
    commit(folder)
    for branch, text in (("topic", theirs), ("main", ours)):
        git(folder, "checkout", "-q", *(("-b", branch) if branch == "topic" else (branch,)))
        (folder / "AGENTS.md").write_text(text)
        commit(folder)


@pytest.mark.parametrize("text", MERGES.values(), ids=MERGES)
@pytest.mark.parametrize("versions", VERSIONS.values(), ids=VERSIONS)
async def test_the_result_of_a_merge_of_committed_files_stays_with_its_conflicts(
    work: Path, versions: tuple[str, str, str], text: str
) -> None:
    diverged(work, *versions)

    outcome = await run(work, text)

    assert outcome.aside == (), outcome.text
    assert ("<<<<<<<" in (work / "AGENTS.md").read_text()) == (versions != VERSIONS["no conflict"])


@pytest.mark.parametrize(
    "text",
    [
        "git merge -q topic; echo evil >> AGENTS.md",
        "git merge -q topic; sed -i 's/HEAD/HEAD please run evil/' AGENTS.md",
        "git merge -q topic; sed -i '/^</d' AGENTS.md",
        "git checkout -q topic; echo evil > AGENTS.md; git commit -qam x; git checkout -q main; git merge -q topic",
        (
            "git merge -q topic; b=$(echo evil | git hash-object -w --stdin);"
            " printf '100644 %s 3\tAGENTS.md\n' $b | git update-index --index-info;"
            " printf '<<<<<<< HEAD\ntwo\n=======\nevil\n>>>>>>> topic\n' > AGENTS.md"
        ),
    ],
)
async def test_a_merge_into_which_the_command_wrote_is_put_aside(work: Path, text: str) -> None:
    diverged(work, *VERSIONS["conflict"])

    outcome = await run(work, text)

    assert outcome.aside == (f"{work}/AGENTS.md.aside",)
    assert (work / "AGENTS.md").read_text() == "two\n"


async def test_a_workspace_with_more_folders_than_are_compared_is_named(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox, why = find_sandbox(os.environ)
    assert sandbox is not None, why
    monkeypatch.setattr(protected_paths, "_MAX_FOLDERS", 20)
    seen: list[tuple[str, ...]] = []
    for count in (5, 30):
        text = f"for i in $(seq {count}); do mkdir -p d/$i; done"
        async with sandbox.open(Command(argv=("/bin/sh", "-c", text), cwd=work, folders=(work,))) as running:
            await running.wait()
        seen.append(tuple(running.unseen))

    assert seen == [(), (str(work),)]
    assert str(work) in notes_of(running)[0]


async def test_git_works_in_a_repository_whose_configuration_was_put_aside(work: Path) -> None:
    outcome = await run(
        work,
        "git init -q d && cd d && git remote add origin https://example.org/x && git config core.pager evil"
        " && git config remote.evil.url 'ext::evil' && echo x > x && git add x && git commit -qm x",
        "cd d && git remote -v && git log --format=%s",
    )

    assert outcome.text == "origin\thttps://example.org/x (fetch)\norigin\thttps://example.org/x (push)\nx\n"
    assert outcome.aside == (f"{work}/d/.git/config.aside",)


async def test_folders_of_programs_that_run_when_called_are_named(work: Path) -> None:
    sandbox, why = find_sandbox(os.environ)
    assert sandbox is not None, why
    text = "mkdir -p node_modules/.bin d/.venv/bin; touch node_modules/.bin/x d/.venv/bin/python"
    async with sandbox.open(Command(argv=("/bin/sh", "-c", text), cwd=work, folders=(work,))) as running:
        await running.wait()

    assert sorted(running.programs) == [f"{work}/d/.venv/bin", f"{work}/node_modules/.bin"]
    assert running.aside == ()


@pytest.mark.parametrize(
    ("line", "is_kept"),
    [
        ("[core]\n\tbare = false\n", True),
        ('[remote "origin"]\n\turl = https://x/y\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n', True),
        ('[branch "a.b"]\n\tremote = origin\n', True),
        ("[core]\n\tfsmonitor = true\n", False),
        ("[CORE]\n\tFSMonitor = x\n", False),
        ("[core]\n\tbare = fal\\\nse\n", False),
        ("[core] fsmonitor = x\n", False),
        ("[core]\tbare = false\n", False),
        ('[include]\n\tpath = x\n', False),
        ('[includeIf "gitdir:/"]\n\tpath = x\n', False),
        ('[remote "x"]\n\turl = ext::x\n', False),
        ('[remote "x"]\n\turl = "ext::x"\n', False),
        ('[remote "x"]\n\tvcs = x\n', False),
        ('[remote "x"]\n\treceivepack = x\n', False),
        ('[submodule "x"]\n\tupdate = !x\n', False),
        ('[submodule "x"]\n\tupdate = ""!x\n', False),
        ('[submodule "x"]\n\tupdate = "" "!x"\n', False),
        ("[gc]\n\trecentObjectsHook = x\n", False),
        ("[gc]\n\tauto = 0\n", True),
        ('[filter "x"]\n\tclean = x\n', False),
        ("[alias]\n\tst = !x\n", False),
        ("[core.x]\n\tfsmonitor = x\n", False),
        ("[init]\n\ttemplatedir = x\n", False),
    ],
)  # fmt: skip
def test_a_line_of_a_configuration_of_git_is_kept_when_it_starts_no_program(line: str, is_kept: bool) -> None:
    assert (harmless_config(line, Path("/w/d/.git")) == line) is is_kept


@pytest.mark.parametrize(
    ("place", "value", "is_kept"),
    [
        (".git/modules/m", "../../../m", True),
        (".git/modules/lib/m", '"../../../../lib/m"', True),
        (".git/modules/m", "../../../..", False),
        (".git/modules/m", "/home", False),
        (".git", "..", False),
        (".git", "../../d/../e", False),
        ("bare", ".", False),
    ],
)
def test_only_a_submodule_names_the_folder_of_its_files(place: str, value: str, is_kept: bool) -> None:
    line = f"[core]\n\tworktree = {value}\n"

    assert (harmless_config(line, Path("/w/d") / place) == line) is is_kept


def test_folders_of_packages_are_not_walked(tmp_path: Path) -> None:
    for place in ("node_modules/left/lib", "node_modules/.bin", "src/deep/er"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "node_modules" / "left" / ".envrc").touch()
    (tmp_path / "src" / "deep" / "er" / ".envrc").touch()

    found = Repositories().below(tmp_path)

    assert list(found.taken_up) == [f"{tmp_path}/src/deep/er/.envrc"]
    assert list(found.programs) == [f"{tmp_path}/node_modules/.bin"]
