"""`make eval`: any model by its name, resumed where it was broken off, its price said before it starts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scenarios.__main__ import main
from scenarios.case import Case, read_corpus
from scenarios.evaluating import Evaluation, Report, evaluate
from scenarios.running import PROFILES
from scenarios.wire import Wire, open_wire

pytestmark = pytest.mark.process

CASES = read_corpus()
FEW = [CASES[name] for name in ("single/read-readme", "multi_step/ship-what-is-paid", "approval/cautious-write-no")]


def plan(wire: Wire, folder: Path, cases: Sequence[Case], profiles: Sequence[str]) -> Evaluation:
    return Evaluation(
        name="local:scripted",
        model_of=wire.of,
        cases=cases,
        profiles=profiles,
        results=folder / "results.jsonl",
        priced=wire.model(),
    )


async def evaluated(evaluation: Evaluation, folder: Path) -> tuple[Report, list[str]]:
    told: list[str] = []
    return await evaluate(evaluation, folder, tell=told.append), told


async def test_a_model_over_the_wire_is_given_the_cases_and_its_own_figures_are_reported(tmp_path: Path) -> None:
    async with open_wire() as wire:
        report, told = await evaluated(plan(wire, tmp_path, FEW, PROFILES), tmp_path / "worlds")

    assert [(one.profile, one.case, one.wrong) for one in report.scores if one.wrong] == []
    assert {name: (one.cases, one.passed) for name, one in report.profiles.items()} == dict.fromkeys(PROFILES, (3, 3))
    asked = len(wire.requests)
    assert sum(one.requests for one in report.scores) == asked
    assert sum(one.input_tokens for one in report.scores) == asked * 1000
    assert sum(one.output_tokens for one in report.scores) == asked * 10
    assert told[0] == "local:scripted: 18 runs to go, 0 are there already"
    assert f"A model that makes no mistake needs {asked} requests" in told[1]
    assert "no price is known" in told[1]
    assert told[2] == "1/18 adaptive single/read-readme: ok"


async def test_what_is_there_is_not_run_again_unless_something_has_changed_that_it_depends_on(tmp_path: Path) -> None:
    async with open_wire() as wire:
        begun = plan(wire, tmp_path, FEW[:2], ["flat"])
        first, _ = await evaluated(begun, tmp_path / "a")
        begun.results.write_text(begun.results.read_text() + '{"stamp": "half of a li', encoding="utf-8")
        asked = len(wire.requests)
        more = replace(begun, cases=FEW)
        second, told = await evaluated(more, tmp_path / "b")
        asked_then = len(wire.requests)
        changed = replace(FEW[0], files={"a.txt": "another world"})
        _, told_of_change = await evaluated(replace(begun, cases=[changed, FEW[1]]), tmp_path / "c")

    assert second.scores[:2] == first.scores
    assert (told[0], asked_then - asked) == ("local:scripted: 1 runs to go, 2 are there already", 2)
    assert told_of_change[0] == "local:scripted: 1 runs to go, 1 are there already"


async def test_an_api_that_refuses_ends_it_and_its_runs_are_left_for_another_day(tmp_path: Path) -> None:
    async with open_wire() as wire:
        wire.refuses = 402
        report, told = await evaluated(plan(wire, tmp_path, FEW, ["flat", "gateway"]), tmp_path / "worlds")

    assert (report.left, len(report.scores), len(wire.requests)) == (6, 0, 3)
    assert "no more money" in report.reason
    assert not (tmp_path / "results.jsonl").exists()
    assert told[-1].startswith("3/6 flat approval/cautious-write-no: failed: HTTP 402")


async def test_no_run_begins_beyond_the_limit_and_the_price_is_that_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    async with open_wire() as wire:
        wire.tokens = 100_000
        paid = wire.model("openai-chat:gpt-4o-mini")

        def of(case: Case, session: Any) -> Any:
            wire.of(case, session)
            return paid

        begun = replace(plan(wire, tmp_path, FEW, ["flat"]), model_of=of, priced=paid, limit=0.05)
        report, told = await evaluated(begun, tmp_path / "worlds")

    assert "about $0." in told[1]
    assert (len(report.scores), report.left) == (1, 2)
    assert report.scores[0].cost == pytest.approx(2 * (0.1 * 0.15 + 10 * 0.6 / 1e6))
    assert report.reason == "$0.03 are spent of $0.05"


def test_the_command_prints_a_table_and_a_line_of_json_and_says_what_failed_by_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["scripted", "--cases", "single/read-*", "--profiles", "flat gateway", "--results", str(tmp_path / "r")]

    assert main(command) == 0
    *table, line = capsys.readouterr().out.splitlines()
    assert [row.split()[:3] for row in table[1:]] == [["flat", "6", "100.0%"], ["gateway", "6", "100.0%"]]
    told = json.loads(line)
    assert (told["model"], told["left"], list(told["groups"])) == ("scripted", 0, ["single"])
    assert {"precision": 1.0, "recall": 1.0, "arguments": 1.0}.items() <= told["profiles"]["gateway"].items()

    kept = [json.loads(one) for one in (tmp_path / "r").read_text().splitlines()]
    kept[0] |= {"wrong": ["it was read badly"]}
    (tmp_path / "r").write_text("\n".join(map(json.dumps, kept)))
    assert main(command) == 1
    captured = capsys.readouterr()
    assert "0 runs to go, 12 are there already" in captured.err
    assert "it was read badly" in captured.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["gpt-5"], "a model is named provider:name"),
        (["scripted", "--profiles", "flut"], "there is no profile 'flut' here, only adaptive, flat"),
        (["scripted", "--cases", "none/*"], "no case is like 'none/*'"),
        (["scripted", "--limit", "much"], "--limit takes US dollars"),
    ],
    ids=["model", "profile", "cases", "limit"],
)
def test_what_cannot_be_evaluated_is_said_at_once(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert problem in capsys.readouterr().err
