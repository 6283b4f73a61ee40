"""Random texts and options, bash and the programs as judges: what the rules let run never runs a denied command."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from toolcrib.core.tool import Tool
from toolcrib.policy.rules import Rules, parse_rules
from toolcrib.policy.shell.launchers import launchers
from toolcrib.policy.shell.readonly_commands import is_read_only_call

pytestmark = pytest.mark.process

SHELL = Tool(name="run_command", local_name="run_command", source="own", category="shell")
RULES = Rules(parse_rules({"allow": ["Bash"], "deny": ["Bash(rm:*)"]}))
PIECES = (
    *(
        "rm",
        "rm x",
        "echo",
        "true",
        "x",
        "a",
        "r",
        "m",
        "E",
        "-",
        "--",
        "command ",
        "exec ",
        "eval ",
        "sh -c ",
        "time ",
    ),
    *(
        " ",
        " ",
        " ",
        "\n",
        "\n",
        "\t",
        ";",
        "; ",
        "&&",
        "||",
        "|",
        "|&",
        "&",
        "!",
        "(",
        ")",
        "{ ",
        "}",
        "; }",
        ",",
        "#",
    ),
    *("$(", "`", '"', "'", "\\", "\\\n", "$", "${", "$a", "a=", "a=rm", "$'", "\\x72m", "{r,}m", "{rm,x}", "[r]m", "*"),
    *(
        "<<E\n",
        "\nE\n",
        "<<-E\n",
        "<<'E'\n",
        "<<<",
        "< ",
        "> x",
        "2>&1",
        "<(",
        ">(",
        "=(",
        "+=",
        "[",
        "]",
        "[[ ",
        " ]]",
    ),
    *("((", "))", "if ", "then ", "else ", "fi", "for i in ", "do ", "done", "case a in ", "a) ", ";;", "esac", "f() "),
    *("function f ", "\r", " ", "in", "select ", "coproc ", "alias a=rm", "@P", "test -v ", "a[", "$((", "~"),
    *("[ a ", ">", "\\ ", "{fd}>", "printf -v ", "declare -n ", "read ", "builtin ", "BASH_CMDS[a]=$PATH/rm", "-eq "),
)
CANARY = "ran"
RUNS = itertools.count()


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Bash, and a folder with the only programs that it finds: `rm`, which leaves a mark, and `sh`."""
    found = shutil.which("bash")
    assert found, "these tests need bash"
    folder = tmp_path_factory.mktemp("stubs")
    (folder / "rm").write_text(f'#!{found}\n: > "$MARK"\n', encoding="utf-8")
    (folder / "rm").chmod(0o755)
    (folder / "sh").symlink_to(found)
    return found, folder


def runs_it(bash: tuple[str, Path], text: str, cwd: Path, *, others: str = "", seconds: float = 20) -> bool:
    """Run `text`; `others` are folders of more programs. Returns whether `rm` ran."""
    program, folder = bash
    mark = folder / f"{CANARY}-{next(RUNS)}"  # of this run: what an earlier one left behind does not count
    running = subprocess.Popen(
        [program, "--norc", "--noprofile", "-c", f"ulimit -f 100\n{text}"],
        cwd=cwd,
        env={"PATH": f"{folder}{others}", "HOME": str(cwd), "TERM": "dumb", "MARK": str(mark)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,  # read to its end: what runs in the background holds it open
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.communicate(timeout=seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # a process in a session of its own has the pipe
        running.communicate(timeout=1)
    return mark.exists()


def test_the_judge_sees_the_command_when_it_runs(bash: tuple[str, Path], tmp_path: Path) -> None:
    assert runs_it(bash, "true; rm x", tmp_path)
    assert not runs_it(bash, "echo rm x", tmp_path)


@settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=14))
@example(pieces=["[ a > x ]"])
@example(pieces=["[ a != b>  ]"])
@example(pieces=["[[a > x ]]"])
@example(pieces=["time [ a == b > x ]"])
@example(pieces=["uniq /dev/null \\ "])
@example(pieces=["uniq /dev/null \\ | cat"])
@example(pieces=["true -exec;", "find . -exec; rm  ;"])
@example(pieces=["time [[ 1 -lt 'b[$(rm x)0]' ]]"])
def test_no_text_that_is_allowed_runs_what_is_denied(bash: tuple[str, Path], tmp_path: Path, pieces: list[str]) -> None:
    text = "".join(pieces)
    if is_read_only_call({"command": text}):
        folder = tmp_path / f"read-{next(RUNS)}"
        folder.mkdir()
        assert not runs_it(bash, text, folder, others=":/usr/bin:/bin", seconds=3)
        assert not list(folder.iterdir())
    decision = RULES.decide(SHELL, {"command": text})

    if decision is not None and decision.effect == "allow" and {"r", "m"} <= set(text):
        assert not runs_it(bash, text, tmp_path)


PROGRAMS = {
    name: launcher
    for name, launcher in launchers().items()
    if shutil.which(name, path="/usr/bin:/bin")
    and name in ("awk", "find", "flock", "install", "perl", "script", "sed", "sort", "split", "ssh", "tar", "zip")
}
"""Programs that are installed and harmless in an empty folder, whatever their options."""
VALUES = (
    *(
        "rm x",
        "rm",
        "exec=rm x",
        "ProxyCommand=rm x",
        "proxycommand rm x",
        "a",
        "b",
        "new.tar",
        "1",
        "-",
        "--",
        "/dev/null",
    ),
    *(
        "erm x",
        "1e rm x",
        "s/.*/rm x/e",
        "s/a/b/;1{erm x",
        "p",
        "system('rm x')",
        "`rm x`",
        "rm x|",
        ":!rm x",
        "+!rm x",
    ),
    *('BEGIN{system("r" "m x")}', 'BEGIN{"rm x"|getline}', "{print}", "print 1", "system(q(r).q(m x))", "{print | $0}"),
)


@st.composite
def command_lines(draw: st.DrawFn) -> str:
    """A program with options from its list, bundled, glued, abbreviated, and values that start `rm`."""
    name = draw(st.sampled_from(sorted(PROGRAMS)))
    one = PROGRAMS[name]
    options = [*one.runs, *one.code, *one.settings]
    letters = "".join(option for option in options if len(option) == 1)
    names = [option for option in options if len(option) > 1]
    words: list[str] = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["bundle", "bundle", "long" if names else "bundle", "value", "value", "old"]))
        value = draw(st.sampled_from(VALUES))
        if kind in ("bundle", "old"):
            alphabet = (one.flags + one.valued + one.glued + letters * 6) or "x"
            bundle = draw(st.text(alphabet, min_size=1, max_size=4))
            words.append(("" if kind == "old" else "-") + bundle + draw(st.sampled_from(["", "", value])))
        elif kind == "long":
            option = draw(st.sampled_from(names))
            words.append(f"--{option[: draw(st.integers(2, len(option)))]}" + draw(st.sampled_from(["", f"={value}"])))
        else:
            words.append(value)
    return f"{name} {shlex.join(words)}"


@pytest.mark.timeout(3600)
def test_no_program_that_is_allowed_starts_what_is_denied(
    bash: tuple[str, Path], tmp_path: Path, full_size: bool
) -> None:
    started = 0

    @settings(max_examples=2_000 if full_size else 50, deadline=None)
    @given(line=command_lines())
    @example(line="tar cf new.tar a b -Irm")
    @example(line="sed '1erm x' a")
    def check(line: str) -> None:
        nonlocal started
        folder = tmp_path / f"work-{next(RUNS)}"  # what an earlier line started may still write in its folder
        folder.mkdir()
        for name in ("a", "b"):
            (folder / name).write_text("rm x\n", encoding="utf-8")
        ran = runs_it(bash, line, folder, others=":/usr/bin:/bin", seconds=3)
        shutil.rmtree(folder, ignore_errors=True)
        started += ran
        decision = RULES.decide(SHELL, {"command": line})
        assert decision is not None
        assert not (ran and decision.effect == "allow"), line

    check()
    assert started >= 2  # the judge sees programs start it
