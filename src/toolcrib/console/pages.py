"""Content of the console's pages, read from one crib and its store."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ..catalog.catalog import BUILTIN_SOURCES
from ..core.json import loads
from ..core.permission import Answer, Approval, Verdict, unreachable_approver
from ..crib import Toolcrib
from ..crib.jobs import jobs_at
from ..crib.problem_summaries import summaries
from ..errors import CODES, ToolFailure
from ..jobs.attempts import job_of
from ..jobs.job import Job
from ..policy.questions import confirmation_word
from ..store.calls import CallFilter

_DAY: Final = 24 * 3600
_ROWS: Final = 100
"""Rows of a list on one page."""
_COUNTED: Final = 5000
"""Calls that the overview counts."""
_TOP: Final = 10
"""Tools that the overview names."""
_NO_FAILURES: Final = ("ok", "input_required", "approval_pending")
"""Outcomes of calls that went well, or wait for a person."""
_CANCEL_SECONDS: Final = 10.0
"""Longest wait for a cancellation, in seconds."""


class ConsolePage(Struct, frozen=True, kw_only=True):
    """A template and its values."""

    template: str
    values: Mapping[str, Any]
    refresh: int = 0
    """Seconds after which it loads itself again; 0 where a person may be reading or typing."""


class Pages:
    """The pages of one crib, for its operator: nothing is hidden from them but secrets."""

    def __init__(self, crib: Toolcrib) -> None:
        """`crib` is open, and the caller closes it."""
        self._crib = crib
        self._mask = crib.parts.storage.redactor.text
        """Masks secrets in the output of servers; calls, questions and jobs are stored without them."""

    async def overview(self) -> ConsolePage:
        """Servers and their states, problems, and the calls of a day."""
        since = time.time() - _DAY
        ended = await self._crib.store.calls.outcomes(since=since, limit=_COUNTED)
        outcomes = Counter(outcome for _, _, outcome, _ in ended)
        tools = Counter(tool for _, tool, _, _ in ended)
        failed = Counter(tool for _, tool, outcome, _ in ended if outcome not in _NO_FAILURES)
        await self._crib.tools.find_look_alikes()  # which a property could only find at once
        return ConsolePage(
            template="overview",
            refresh=15,
            values={
                "sources": [replace(one, detail=self._mask(one.detail)) for one in self._crib.tools.sources],
                "problems": self._problems(),
                "pending": len(await self._crib.approvals.pending()),
                "running": len(await self._crib.store.jobs.open()),
                "tools": len(self._crib.catalog.tools),
                "calls": len(ended),
                "is_more": len(ended) == _COUNTED,
                "outcomes": [(one, count, one in _NO_FAILURES) for one, count in outcomes.most_common()],
                "busiest": [(tool, count, failed[tool]) for tool, count in tools.most_common(_TOP)],
            },
        )

    def _problems(self, source: str = "") -> list[str]:
        """Return the problems of one source, or of all."""
        found = summaries(self._crib.tools.problems, self._crib.settings.file_options)
        return [self._mask(text) for problem, text in found if source in ("", problem.source)]

    async def approvals(self) -> ConsolePage:
        """Questions that wait, and those that were answered lately."""
        pending = await self._crib.approvals.pending()
        settled = [one for one in await self._crib.approvals.list(limit=_ROWS) if one.state != "pending"]
        return ConsolePage(template="approvals", values={"pending": pending, "settled": settled}, refresh=3)

    async def approval(self, id: str) -> ConsolePage:
        """One question, whole, with what came of it. Raises `ToolFailure("not_found")`."""
        approval = await self._crib.approvals.get(id)
        result = await self._crib.approvals.result(id)
        values = {"approval": approval, "word": _word_of(approval), "result": None if result is None else result.text}
        return ConsolePage(template="approval", values=values)

    async def answer(self, id: str, given: Mapping[str, str], by: str) -> None:
        """Answer a question by a form's fields.

        Raises `ToolFailure`: `not_found`, `conflict` where it is settled already or has changed, and
        `invalid_arguments` where the hash of the question is missing, or the word of a destructive call.
        """
        verdict, comment = given.get("verdict", ""), given.get("comment", "").strip()
        answers: Mapping[str, Verdict] = {
            "yes": "yes",
            "always": "always",
            "no": "comment" if comment else "no",
            "never": "never",
        }
        if verdict not in answers:
            raise ToolFailure("invalid_arguments", "the form has no answer; there are yes, always, no and never")
        if not given.get("hash"):
            raise ToolFailure("invalid_arguments", "the form does not say which question it answers; load it again")
        word = _word_of(await self._crib.approvals.get(id))
        if verdict in ("yes", "always") and word and given.get("word", "").strip().lower() != word.lower():
            raise ToolFailure("invalid_arguments", f"this call can destroy: type {word} to approve it")
        answer = Answer(verdict=answers[verdict], by=f"{by} (console)", comment=comment)
        await self._crib.approvals.decide(id, answer, hash=given["hash"])

    async def calls(self, wanted: CallFilter, before: int) -> ConsolePage:
        """The newest calls first; `before` is the number of the call that the page before ended with, 0 for none."""
        calls = await self._crib.store.calls.list(**wanted, before=before, limit=_ROWS)
        values: dict[str, Any] = {
            "calls": calls,
            "wanted": wanted,
            "outcomes": ("ok", "error", "input_required", *CODES),
            "fine": _NO_FAILURES,
            "next": calls[-1].seq if len(calls) == _ROWS else 0,
        }
        return ConsolePage(template="calls", values=values)

    async def call(self, id: str) -> ConsolePage:
        """One call as it was recorded. Raises `ToolFailure("not_found")`."""
        found = await self._crib.store.calls.get(id)
        if found is None:
            raise ToolFailure("not_found", f"there is no call {id[:60]!r}, or it has not ended")
        return ConsolePage(template="call", values={"call": found})

    async def tools(self, query: str, source: str, page: int) -> ConsolePage:
        """The tools that fit a query, best first; all of them without one, built-in ones behind the others.

        `source` selects those of one source, with its problems; empty selects all.
        """
        catalog = self._crib.catalog
        if query:
            await catalog.prepare(query)
            found = [catalog.tools[hit.name] for hit in catalog.search(query, _ROWS)]
        else:
            found = sorted(catalog.tools.values(), key=lambda tool: tool.source in BUILTIN_SOURCES)
        if source:
            found = [tool for tool in found if tool.source == source]
        pages = max(1, math.ceil(len(found) / _ROWS))
        page = min(max(page, 1), pages)
        shown = found[(page - 1) * _ROWS : page * _ROWS]
        numbers = {"count": len(found), "page": page, "pages": pages}
        problems = self._problems(source) if source else ()
        values = {"query": query, "source": source, "problems": problems, "tools": shown, **numbers}
        return ConsolePage(template="tools", values=values)

    async def tool(self, name: str) -> ConsolePage:
        """One tool: its definition, and whether a new session may call it. Raises `ToolFailure("not_found")`."""
        tool = self._crib.catalog.find(name)
        if tool is None:
            near = ", ".join(self._crib.catalog.nearest(name))
            hint = f"near: {near}" if near else ""
            raise ToolFailure("not_found", f"there is no tool {name[:100]!r}", hint=hint)
        session = self._crib.session(approver=unreachable_approver)
        values = {
            "tool": tool,
            "state": self._crib.tools.state_of(tool).state,
            "why": self._crib.explainer.why(name, session),
        }
        return ConsolePage(template="tool", values=values)

    async def jobs(self) -> ConsolePage:
        """Return the jobs that run in the background, and those that ended lately."""
        since = time.time() - self._crib.settings.jobs.age
        rows = await self._crib.store.jobs.list(None, since=since, limit=_ROWS)
        jobs = [job_of(row if row.status == "failed" else replace(row, result=None)) for row in rows]
        return ConsolePage(template="jobs", values={"jobs": jobs, "is_more": len(rows) == _ROWS}, refresh=5)

    async def job(self, id: str) -> ConsolePage:
        """One job. Raises `ToolFailure("not_found")`."""
        job = await self._job(id)
        values = {"job": job, "result": None if job.result is None else job.result.text}
        return ConsolePage(template="job", values=values, refresh=5 if job.ended is None else 0)

    async def cancel(self, id: str) -> None:
        """Ask a job to stop, in whichever process it runs. Raises `ToolFailure("not_found")`."""
        job = await self._job(id)
        with anyio.move_on_after(_CANCEL_SECONDS):
            await jobs_at(self._crib.store, self._crib.settings.jobs).cancel(job.id, job.principal)

    async def _job(self, id: str) -> Job:
        row = await self._crib.store.jobs.get(id, None)
        if row is None:
            raise ToolFailure("not_found", f"there is no job {id[:60]!r}")
        return job_of(row)


def _word_of(approval: Approval) -> str:
    """Return the word that approves a call; empty where a click does."""
    return confirmation_word(approval.tool, approval.kind, approval.rule, loads(approval.arguments))
