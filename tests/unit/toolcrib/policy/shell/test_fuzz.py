"""Random shell texts, and bash itself as the judge: what the rules let run never runs the command that they deny."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcrib.core.tool import Tool
from toolcrib.policy.rules import Rules, parse_rules

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
)
CANARY = "ran"


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Bash, and a folder with the only programs that it finds: `rm`, which leaves a mark, and `sh`."""
    found = shutil.which("bash")
    assert found, "these tests need bash"
    folder = tmp_path_factory.mktemp("stubs")
    (folder / "rm").write_text(f"#!{found}\n: > '{folder / CANARY}'\n", encoding="utf-8")
    (folder / "rm").chmod(0o755)
    (folder / "sh").symlink_to(found)
    return found, folder


def runs_it(bash: tuple[str, Path], text: str, cwd: Path) -> bool:
    program, folder = bash
    (folder / CANARY).unlink(missing_ok=True)
    limited = ["-c", f"ulimit -f 100\n{text}"]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [program, "--norc", "--noprofile", *limited],
            cwd=cwd,
            env={"PATH": str(folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,  # read to its end: what runs in the background holds it open
            timeout=20,
            check=False,
        )
    return (folder / CANARY).exists()


def test_the_judge_sees_the_command_when_it_runs(bash: tuple[str, Path], tmp_path: Path) -> None:
    assert runs_it(bash, "true; rm x", tmp_path)
    assert not runs_it(bash, "echo rm x", tmp_path)


@settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=14))
def test_no_text_that_is_allowed_runs_what_is_denied(bash: tuple[str, Path], tmp_path: Path, pieces: list[str]) -> None:
    text = "".join(pieces)
    decision = RULES.decide(SHELL, {"command": text})

    if decision is not None and decision.effect == "allow" and {"r", "m"} <= set(text):
        assert not runs_it(bash, text, tmp_path)
