"""Files of the workspace that a command runs: a deny and an ask mean what stands in them, too."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolcrib.core.sandbox import SHELL_FOLDER
from toolcrib.core.session import SessionState
from toolcrib.core.tool import Tool
from toolcrib.policy.decision import Policy
from toolcrib.policy.rule_layers import RuleLayers
from toolcrib.policy.rules import Rules, parse_rules
from toolcrib.policy.shell.started_file import content_of

HERE = Path(__file__).parent
SHELL = Tool(name="run_command", local_name="run_command", source="own", category="shell")
RULES = Rules(parse_rules({"allow": ["Bash"], "deny": ["Bash(rm:*)", "Bash(git push:*)"]}))
RUNS: list[Mapping[str, Any]] = yaml.load((HERE / "workspace_runs.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
GIVEN: list[Mapping[str, Any]] = yaml.load((HERE / "given_files.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
PROJECT: Mapping[str, str] = yaml.load((HERE / "ordinary_project.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
ORDINARY = (HERE / "ordinary.txt").read_text(encoding="utf-8").splitlines()
ASKED = {
    "sed 's/rm/del/' a.txt",
    "source .venv/bin/activate && pytest",
    ". .venv/bin/activate; python3 src/app.py",
    "node --test",
    "npx eslint .",
    "npx prettier --write .",
    "docker build -t app .",
    'docker run --rm -v "$PWD:/app" app npm test',
    "psql -f schema.sql",
    "cat > notes.md <<< 'text'",
}
"""Ordinary commands that rules with a deny ask about, whatever the files are."""


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        sign, _, program = text.partition(" ")
        if sign == "=>":
            file.symlink_to(program)
        elif sign == "==":
            shutil.copy(program, file)
        else:
            file.write_text(text, encoding="utf-8")
            file.chmod(0o755 if text.startswith("#!") else 0o644)


def effect(rules: Rules, command: str, folder: Path, **more: Any) -> str:
    decision = rules.decide(SHELL, {"command": command, **more}, folder)
    return "none" if decision is None else decision.effect


@pytest.mark.parametrize("first", range(0, len(RUNS), 100))
def test_a_file_that_names_a_denied_command_runs_only_after_a_question(first: int, tmp_path: Path) -> None:
    unasked: list[Mapping[str, Any]] = []
    for place, run in enumerate(RUNS[first : first + 100]):
        folder = tmp_path / str(place)
        folder.mkdir()
        write(folder, run["files"])
        if effect(RULES, run["command"], folder) not in ("ask", "deny"):
            unasked.append(run)

    assert unasked == []


def test_a_file_that_is_written_again_is_read_again_however_soon(tmp_path: Path) -> None:
    makefile = tmp_path / "Makefile"
    for number in range(100, 150):  # many of them in one tick of the clock of files
        makefile.write_text(f"all:\n\techo {number}\n")
        assert content_of(makefile) == makefile.read_bytes()


def test_each_file_that_an_option_or_a_variable_names_is_read_whatever_its_name_is(tmp_path: Path) -> None:
    allowed: list[str] = []
    for place, run in enumerate(GIVEN):
        folder = tmp_path / str(place)
        write(folder, run["files"])
        if effect(RULES, run["command"], folder) == "allow":
            allowed.append(run["command"])

    assert (len(GIVEN) > 250, allowed) == (True, [])


def test_an_option_behind_very_many_words_counts_as_at_their_begin(tmp_path: Path) -> None:
    write(tmp_path, {"plug.py": "import os\nos.system('rm x')\n", "a.txt": ""})

    assert effect(RULES, f"pytest {'a.txt ' * 2_000} -p plug", tmp_path) == "ask"
    assert effect(RULES, f"pytest {'a.txt ' * 2_000}", tmp_path) == "allow"


@pytest.mark.parametrize(
    "command", ["make -C {}", "cd {}; make", "tool --text {}", "tool {}", "A={} tool", "git -C {} log"]
)
def test_a_word_that_is_too_long_for_a_name_is_no_file(command: str, tmp_path: Path) -> None:
    for name in ("x" * 5_000, f"{'x' * 300}/y", "x/" * 3_000):
        assert effect(RULES, command.format(name), tmp_path) == "allow"


def test_a_step_of_a_dockerfile_that_tidies_up_its_image_is_no_deletion(tmp_path: Path) -> None:
    step = "RUN apt-get update && apt-get install -y git \\\n && rm -rf /var/lib/apt/lists/* /tmp/*\n"
    write(tmp_path, {"Dockerfile": f"FROM a\n{step}", "compose.yaml": "services:\n a:\n  build: .\n"})

    assert effect(RULES, "docker compose up -d", tmp_path) == "allow"
    write(tmp_path, {"Dockerfile": f"FROM a\n{step}CMD rm -rf /tmp/a\n"})
    assert effect(RULES, "docker compose up -d", tmp_path) == "ask"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    write(folder, PROJECT)
    return folder


def test_ordinary_commands_of_a_project_with_such_files_are_decided_as_without_them(project: Path) -> None:
    assert len(ORDINARY) >= 560
    assert {text for text in ORDINARY if effect(RULES, text, project) != "allow"} == ASKED


@pytest.mark.parametrize(
    "command",
    [
        *("make clean", "make release", "make test clean", "npm run clean", "npm run release", "yarn clean"),
        *(
            "just clean",
            "git nuke",
            "git rm src/app.py",
            "git clean -fd",
            "find . -name '*.pyc' -delete",
            "unlink a.txt",
        ),
    ],
)
def test_the_targets_of_the_same_project_that_delete_or_push_are_asked_about(project: Path, command: str) -> None:
    assert effect(RULES, command, project) == "ask"


def test_a_rule_that_asks_means_the_files_too_and_an_allow_alone_reads_none(project: Path) -> None:
    asking = Rules(parse_rules({"allow": ["Bash"], "ask": ["Bash(git push:*)"]}))
    allowing = Rules(parse_rules({"allow": ["Bash"]}))

    assert effect(asking, "make release", project) == "ask"
    assert effect(asking, "make clean", project) == "allow"
    assert effect(allowing, "make clean", project) == "allow"


def test_the_working_directory_of_the_call_counts(project: Path, tmp_path: Path) -> None:
    assert effect(RULES, "make clean", tmp_path) == "allow"
    assert effect(RULES, "make clean", tmp_path, working_dir=str(project)) == "ask"


@pytest.mark.parametrize(
    ("command", "file", "text"),
    [
        ("git z", ".git/config", "[alias]\n\tz = !rm x\n"),
        ("npm run a", "package.json", '{"scripts": {"a": "rm x"}}'),
        ("cargo build", ".cargo/config.toml", "[build]\nrustc-wrapper = 'rm x'\n"),
        ("docker compose up", "compose.yaml", "services:\n a:\n  command: rm x\n"),
    ],
)
def test_a_program_that_looks_above_its_folder_finds_the_files_there(
    command: str, file: str, text: str, tmp_path: Path
) -> None:
    write(tmp_path, {".git/HEAD": "", "a/b/c": "", file: text})

    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        assert effect(RULES, command, folder) == "ask"
    assert effect(RULES, command, tmp_path, working_dir="a/b") == "ask"
    assert effect(RULES, command, tmp_path, cwd="a/b") == "ask"
    assert effect(RULES, "make", tmp_path / "a") == "allow"


def test_the_folder_of_a_shell_that_stays_counts_beside_that_of_the_call(tmp_path: Path) -> None:
    write(tmp_path, {"sub/Makefile": "all:\n\trm x\n", "sub/secret": "", "Makefile": "all:\n\ttrue\n"})
    policy = Policy(RuleLayers(RULES))
    session = SessionState(key="k", mode="autonomous")
    session.files.cwd = tmp_path

    def decided(**arguments: str) -> str:
        return policy.decide(SHELL, {"command": "make", **arguments}, session).effect

    before = decided()
    session.runtime[SHELL_FOLDER] = tmp_path / "sub"

    assert (before, decided(), decided(working_dir=".")) == ("allow", "ask", "allow")


def test_deletion_without_rm_is_asked_about_only_where_every_rm_is_denied(tmp_path: Path) -> None:
    narrow = Rules(parse_rules({"allow": ["Bash"], "deny": ["Bash(rm -rf:*)"]}))

    assert effect(narrow, "git rm a", tmp_path) == "allow"
    assert effect(RULES, "git rm a", tmp_path) == "ask"
    assert effect(RULES, "git rm --cached a", tmp_path) == "allow"
    assert effect(RULES, "git clean -nd", tmp_path) == "allow"


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, {"a": "#!/bin/sh\ntrue\n"})
    before = effect(RULES, "./a", tmp_path)
    write(tmp_path, {"a": "#!/bin/sh\nrm x\n"})

    assert (before, effect(RULES, "./a", tmp_path)) == ("allow", "ask")


def test_a_file_that_is_put_into_a_folder_whose_time_is_set_back_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = time.time_ns() + 10**10
    monkeypatch.setattr(time, "time_ns", lambda: later)
    before = effect(RULES, "mvn test", tmp_path)
    known = tmp_path.stat()
    write(tmp_path, {"pom.xml": "<executable>rm</executable>"})
    os.utime(tmp_path, ns=(known.st_atime_ns, known.st_mtime_ns))
    while tmp_path.stat().st_ctime_ns == known.st_ctime_ns:  # until the clock of the file system ticks
        os.utime(tmp_path, ns=(known.st_atime_ns, known.st_mtime_ns))

    assert (before, effect(RULES, "mvn test", tmp_path)) == ("allow", "ask")


@pytest.mark.parametrize("content", ["#" * 2_000_000, "true\n" * 20_000])
def test_a_script_that_is_too_large_hides_nothing(tmp_path: Path, content: str) -> None:
    write(tmp_path, {"a": f"#!/bin/sh\n{content}\nrm x\n"})

    assert effect(RULES, "./a", tmp_path) == "ask"


def test_a_makefile_that_includes_another_one_by_its_whole_path_hides_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"sub/a.mk": "all:\n\trm x\n", "Makefile": f"include {tmp_path}/sub/a.mk\n"})

    assert effect(RULES, "make", tmp_path) == "ask"


def test_scripts_that_run_one_another_end(tmp_path: Path) -> None:
    write(
        tmp_path, {"a": "#!/bin/sh\n./b\nmake\n", "b": "#!/bin/sh\n./a\n", "Makefile": "A=$(A)\nall: all\n\t./a $(A)\n"}
    )

    assert effect(RULES, "./a", tmp_path) == "allow"


HOSTILE = {
    "Makefile": [
        "define X\n",
        "$(shell ",
        "a: b\n",
        "A=$(B)$(B)\nB=$(A)$(A)\na:\n\t$(A)\n",
        "include *\n",
        f"a{' ' * 900}",
        " ",
        "${shell x",
        "${wildcard x",
        "a: $$b\nb c d: $$e\n",
    ],
    "a.py": ["import a", ' q("', '";' + " " * 300, "bin/", "'rm", "require(" + " " * 20, "from a.b.c import d\n"],
    "a.sh": ["a|", "cd a\n", "./a.sh\n"],
    ".git/config": ["[alias]\nz = z\n", '[a "', "[a"],
    "setup.cfg": ["[", "[ ", "[a]\n", "= rm ; ", "x/", "-\t", " \n"],
    "Dockerfile": ["FROM a\n", "RUN ", "\\\n", "RUN <<E\n", "HEALTHCHECK --a ", "rm /tmp ", "# \n", "RUN --a "],
    "pom.xml": ["rm", "a.b.c ", "<", "\n - rm", "exec "],
}


@pytest.mark.parametrize(
    "recipe",
    [
        "\techo " + "$(A)" * 60 + "\n",
        "\t$(shell x)" * 300 + "\n",
        f"\t$(shell {'x' * 9_000})\n",
        f"\techo {'x' * 600_000}\n",
    ],
)
def test_a_makefile_in_which_more_stands_than_is_read_is_asked_about(tmp_path: Path, recipe: str) -> None:
    write(tmp_path, {"Makefile": f"A={'x' * 4_000}\nall:\n{recipe * 5}"})

    assert effect(RULES, "make", tmp_path) == "ask"


@pytest.mark.long
@pytest.mark.parametrize(("name", "unit"), [(name, unit) for name, units in HOSTILE.items() for unit in units])
def test_a_file_made_to_keep_the_reader_busy_is_decided_on(
    tmp_path: Path, name: str, unit: str, full_size: bool
) -> None:
    size = 600_000 if full_size else 100_000
    write(tmp_path, {name: ("#!/bin/sh\n" if name == "a.sh" else "") + unit * (size // len(unit))})

    assert effect(
        RULES, "make a; python3 a.py; ./a.sh; git z; mypy .; mvn test; docker build -f Dockerfile x", tmp_path
    ) in ("allow", "ask")


@pytest.mark.long
def test_links_that_lead_back_do_not_multiply_what_a_pattern_means(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).symlink_to(".")
    write(tmp_path, {"Makefile": f"include {'*/' * 12}x\nall:\n\trm x\n"})
    began = time.process_time()

    assert effect(RULES, f"cd {'*/' * 12} && make", tmp_path) in ("deny", "ask")
    assert time.process_time() - began < 5


TASKS = {
    "Taskfile.yml": (
        "version: '3'\ntasks:\n  clean:\n    cmds: [rm -rf dist]\n"
        "  build:\n    desc: Build\n    cmds:\n      - go build\n"
    ),
    "mise.toml": "[tools]\nnode = '22'\n[tasks.clean]\nrun = 'rm -rf dist'\n[tasks.build]\nrun = 'npm run build'\n",
    "pyproject.toml": (
        "[project]\nname = 'a'\n[tool.poe.tasks]\nclean = 'rm -rf dist'\ntest = 'pytest'\nall = ['test', 'clean']\n"
        "[tool.pdm.scripts]\nclean = 'rm -rf dist'\ntest = 'pytest'\n"
        "[tool.hatch.envs.default.scripts]\nclean = 'rm -rf dist'\ntest = 'pytest'\n"
    ),
    "deno.json": '{"tasks": {"clean": "rm -rf dist", "dev": "deno run main.ts"}}',
    "composer.json": '{"scripts": {"clean": "rm -rf dist", "test": "phpunit"}}',
    "Makefile.toml": "[tasks.clean]\nscript = 'rm -rf dist'\n[tasks.build]\ncommand = 'cargo'\nargs = ['build']\n",
    "CMakeLists.txt": "# rm the build folder first\nproject(a)\nadd_executable(a a.c)\n",
    "vite.config.ts": "export default { build: { outDir: 'dist' } }\n",
    "main.go": "package main\n\n// run rm before\nfunc main() {}\n",
    "setup.py": "from setuptools import setup\nsetup()\n",
    "gulpfile.js": "exports.build = () => src('a').pipe(dest('dist'))\n",
}
"""Documents of a project, with a task that removes the build beside others."""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        *((text, "allow") for text in ("task build", "mise run build", "poe test", "uv run poe test", "pdm run test")),
        *((text, "allow") for text in ("hatch run test", "deno task dev", "composer test", "composer install")),
        *((text, "allow") for text in ("cargo make build", "cargo build", "cmake -B build", "npx vite build")),
        *((text, "allow") for text in ("go run .", "go test ./...", "pip install -e .", "uv sync", "gulp build")),
        *((text, "ask") for text in ("task clean", "mise run clean", "poe all", "uv run poe clean", "pdm clean")),
        *((text, "ask") for text in ("hatch run clean", "deno task clean", "composer run clean", "cargo make clean")),
    ],
)
def test_of_a_document_of_tasks_the_ones_that_a_run_reaches_count(command: str, expected: str, tmp_path: Path) -> None:
    write(tmp_path, TASKS)

    assert effect(RULES, command, tmp_path) == expected
