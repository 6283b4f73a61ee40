"""`make eval MODEL=provider:name [PROFILES=a,b] [CASES='single/* error/*'] [LIMIT=DOLLARS]`: the corpus with any model.

Prints what it will cost before it starts, a line a run, a table, and one line of JSON at the end. It can be broken off:
the next time goes on. The results are in `.cache/eval`. `scripted` is a model that makes no mistake; with it the exit
status is 1 when any case fails.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from rig import ROOT
from scenarios.case import Case, read_corpus
from scenarios.evaluating import Evaluation, Report, evaluate
from scenarios.running import PROFILES, scripted
from toolcrib.errors import UsageError
from toolcrib_agent import model_of

SCRIPTED: Final = "scripted"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status.

    1: with `scripted`, a case failed. 2: what was asked for cannot be. 3: runs are left.
    """
    given = _parser().parse_args(arguments)
    try:
        plan = _plan(given)
    except UsageError as error:
        _tell(f"eval: {error}")
        return 2
    with tempfile.TemporaryDirectory(prefix="toolcrib-eval-") as folder:
        run = partial(evaluate, plan, Path(folder), tell=_tell, only_forecast=given.forecast)
        report = anyio.run(run)
    _print(report)
    if report.left and not given.forecast:
        return 3
    return int(plan.name == SCRIPTED and any(not one.passed for one in report.scores))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make eval", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", help="provider:name, as toolcrib_agent knows models, or `scripted`")
    parser.add_argument("--profiles", default="", help="names with commas between; all when nothing is said")
    parser.add_argument("--cases", default="", help="patterns of ids, such as single/* ; all when nothing is said")
    parser.add_argument("--limit", default="", metavar="USD", help="begin no run beyond this price")
    parser.add_argument("--results", type=Path, help="the file with one line a run; .cache/eval/MODEL.jsonl")
    parser.add_argument("--forecast", action="store_true", help="only say what it would cost")
    return parser


def _plan(given: argparse.Namespace) -> Evaluation:
    """Return what is to be done. Raises `UsageError` for what cannot be."""
    name: str = given.model
    model = None if name == SCRIPTED else model_of(name)
    slug = re.sub(r"[^\w.-]+", "_", name)
    results: Path = given.results or ROOT / ".cache" / "eval" / f"{slug}.jsonl"
    if model is None and given.results is None:
        results.unlink(missing_ok=True)  # what costs nothing begins anew: our own code has changed meanwhile
    return Evaluation(
        name=name,
        model_of=scripted() if model is None else lambda case, session: model,
        cases=_cases(given.cases),
        profiles=_profiles(given.profiles),
        results=results,
        priced=model,
        limit=_dollars(given.limit),
    )


def _cases(patterns: str) -> list[Case]:
    wanted = patterns.replace(",", " ").split()
    corpus = read_corpus()
    found = [case for case in corpus.values() if not wanted or any(fnmatch(case.id, one) for one in wanted)]
    if not found:
        raise UsageError(f"no case is like {patterns!r}: their ids are such as {', '.join(list(corpus)[:3])}")
    return found


def _profiles(names: str) -> list[str]:
    wanted = names.replace(",", " ").split() or list(PROFILES)
    for name in wanted:
        if name not in PROFILES:
            raise UsageError(f"there is no profile {name!r} here, only {', '.join(PROFILES)}")
    return wanted


def _dollars(given: str) -> float | None:
    try:
        return float(given) if given else None
    except ValueError:
        raise UsageError(f"--limit takes US dollars, such as 2.50, not {given!r}") from None


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _print(report: Report) -> None:
    if report.left:
        _tell(f"{report.left:,} runs are left: {report.reason}")
    for one in report.scores:
        if not one.passed:
            _tell(f"{one.profile} {one.case}: {'; '.join(one.wrong)}")
    if report.scores:
        sys.stdout.write(f"{report.table}\n")
    sys.stdout.write(f"{json.dumps(report.to_json())}\n")


if __name__ == "__main__":
    sys.exit(main())
