"""The approvals of approvals of a whole crib: asked through every way there is, answered once, run once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from rig import eventually
from toolcrib.config import Settings, bare
from toolcrib.core.context import Context
from toolcrib.core.permission import Answer, Approval, Question, Verdict
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Execution, Tool
from toolcrib.crib import Session, Toolcrib, defer_approval, pending_approval
from toolcrib.disclosure.settings import BUILT_IN
from toolcrib.errors import ToolFailure
from toolcrib.plugin import tool
from toolcrib.policy.settings import ApprovalSettings
from toolcrib.sources.yaml.document import YamlOptions
from toolcrib.sources.yaml.source import YamlSource
from toolcrib.testing import RecordingApprover, ScriptedSource

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "content": {"type": "string"},
        "mode": {"type": "integer", "default": 7},
    },
    "required": ["path"],
    "additionalProperties": False,
}
WAIT = ApprovalSettings(wait=True)
RUN = ApprovalSettings(wait=True, when_gone="run")


async def show(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text(",".join(f"{key}={value}" for key, value in sorted(arguments.items())))


def source() -> ScriptedSource:
    listed = [
        Tool(name=name, source="fs", local_name=name, input_schema=SCHEMA, annotations=Annotations())
        for name in ("write", "remove")
    ]
    return ScriptedSource("fs", {tool.name: show for tool in listed}, listed=listed)


@asynccontextmanager
async def opened(fs: ScriptedSource, approvals: ApprovalSettings = WAIT, **settings: Any) -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(bare().with_values(approvals=approvals, **settings), memory=True) as crib:
        await crib.tools.mount_source(fs)
        yield crib


async def next_pending(crib: Toolcrib) -> Approval:
    """Return the question that is open, as soon as there is one."""
    async for approval in crib.approvals.watch():
        if approval.state == "pending":
            return approval
    raise AssertionError


async def answered(crib: Toolcrib, session: Session, answer: Answer, name: str = "fs__write") -> ToolResult:
    """Call, answer at the approvals, and return the result."""
    results = list[ToolResult]()

    async def call() -> None:
        results.append(await session.call(name, {"path": "a"}))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await crib.approvals.decide((await next_pending(crib)).id, answer)
    return results[0]


async def test_the_store_shows_what_waits_and_its_yes_lets_exactly_that_run() -> None:
    fs = source()
    async with opened(fs) as crib:
        result = await answered(crib, crib.session(), Answer(verdict="yes", by="Ada"))
        (approval,) = await crib.approvals.list()

        assert (result.text, fs.calls) == ("mode=7,path=a", [("write", {"mode": 7, "path": "a"})])
        assert (approval.state, approval.tool, approval.by) == ("used", "fs__write", "Ada")
        assert approval.arguments == '{\n "mode": 7,\n "path": "a"\n}'
        assert approval.call_id == result.meta["call_id"]
        (row,) = await crib.store.calls.list()
        assert (row.decision, row.rule) == ("ask", f"approved by Ada ({approval.rule})"), "the record says who"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer(verdict="no", by="Ada"), "Ada refused fs__write"),
        (Answer(verdict="comment", by="Ada", comment="use staging"), "Ada refused fs__write: use staging"),
        (Answer(verdict="never", by="Ada"), "Ada refused fs__write"),
    ],
    ids=["no", "comment", "never"],
)
async def test_every_kind_of_no_is_a_refusal_and_nothing_runs(answer: Answer, text: str) -> None:
    fs = source()
    async with opened(fs) as crib:
        result = await answered(crib, crib.session(), answer)

    assert result.error is not None
    assert (result.error.code, result.error.message, fs.calls) == ("denied", text, [])


async def test_an_edit_runs_with_the_other_arguments_completed_and_checked_as_any() -> None:
    fs = source()
    async with opened(fs, rules={"deny": ("fs__write(path=/etc/*)",)}) as crib:
        ran = await answered(crib, crib.session(), Answer(verdict="edit", by="Ada", arguments={"path": "b"}))
        denied = await answered(crib, crib.session(), Answer(verdict="edit", by="Ada", arguments={"path": "/etc/x"}))
        async with anyio.create_task_group() as group:
            group.start_soon(crib.session().call, "fs__write", {"path": "a"})
            asked = await next_pending(crib)
            with pytest.raises(ToolFailure, match="does not take that") as failure:
                await crib.approvals.decide(asked.id, Answer(verdict="edit", arguments={"paths": "b"}))
            assert (await crib.approvals.get(asked.id)).state == "pending"
            assert failure.value.code == "invalid_arguments"
            await crib.approvals.decide(asked.id, Answer(verdict="no"))

    told = '[Ada approved this call with other arguments: { "path": "b" }]'
    assert ran.text.splitlines() == ["mode=7,path=b", told], "the model knows that something else was done"
    assert denied.error is not None
    assert "Ada changed the arguments of fs__write, and it cannot run with them" in denied.error.message
    assert fs.calls == [("write", {"mode": 7, "path": "b"})]


@pytest.mark.parametrize("profile", BUILT_IN)
async def test_in_every_profile_the_model_reads_that_a_call_ran_with_other_arguments(profile: str) -> None:
    @tool(kind="write", core=True)
    async def note(text: str) -> str:
        """Write a note."""
        return text

    async def edit(question: Question) -> Answer:
        return Answer(verdict="edit", by="Ada", arguments={"text": "two"})

    async with Toolcrib() as crib:
        crib.add(note)
        result = await crib.session(profile=profile, mode="cautious", approver=edit).call("note", {"text": "one"})

    assert not result.is_error
    assert "Ada approved this call with other arguments" in result.text


@pytest.mark.parametrize(
    ("verdict", "asked"),
    [
        ("yes", ["write", "write", "remove", "write"]),
        ("once", ["write", "write", "remove", "write"]),
        ("always", ["write", "remove"]),
        ("turn", ["write", "write"]),
        ("all", ["write"]),
        ("idle", ["write"]),
    ],
)
async def test_a_wide_answer_covers_as_much_as_it_says(verdict: Verdict, asked: list[str]) -> None:
    """The same tool again, another one, then the first in the next interaction."""
    approver = RecordingApprover(verdict)
    async with opened(source()) as crib:
        session = crib.session(approver=approver)
        for name in ("fs__write", "fs__write", "fs__remove"):
            assert not (await session.call(name, {"path": "a"})).is_error
        session.begin()
        assert not (await session.call("fs__write", {"path": "a"})).is_error

    assert [question.tool.local_name for question in approver.questions] == asked


async def test_an_idle_yes_ends_when_the_session_rests() -> None:
    approver = RecordingApprover("idle")
    async with opened(source(), ApprovalSettings(idle=60.0)) as crib:
        session = crib.session(approver=approver)
        await session.call("fs__write", {"path": "a"})
        session.state.approvals.blanket["idle"] -= 59.0
        await session.call("fs__write", {"path": "a"})
        assert len(approver.questions) == 1
        session.state.approvals.blanket["idle"] -= 61.0
        await session.call("fs__write", {"path": "a"})

    assert len(approver.questions) == 2


async def test_a_session_that_is_left_forgets_every_answer() -> None:
    approver = RecordingApprover("all")
    async with opened(source()) as crib:
        for _ in range(2):
            async with crib.session(key="k", approver=approver) as session:
                await session.call("fs__write", {"path": "a"})

    assert len(approver.questions) == 2


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("fs__nothing", {}, "not_found"),
        ("fs__write", {"path": 1}, "invalid_arguments"),
        ("fs__write", {"path": "a", "more": 1}, "invalid_arguments"),
        ("fs__write", {"path": "/etc/x"}, "denied"),
        ("fs__remove", {"path": "a"}, "disabled"),
    ],
)
async def test_nobody_is_asked_about_a_call_that_must_fail(name: str, arguments: dict[str, Any], code: str) -> None:
    approver = RecordingApprover()
    async with opened(source(), rules={"deny": ("fs__write(path=/etc/*)",)}) as crib:
        session = crib.session(approver=approver)
        session.disable("fs__remove")
        result = await session.call(name, arguments)

        assert (result.error and result.error.code, approver.questions) == (code, [])
        assert await crib.approvals.list() == []


async def test_a_batch_shows_all_its_questions_at_once_and_each_gets_its_own_answer() -> None:
    fs = source()
    results = list[ToolResult]()
    async with opened(fs) as crib:

        async def call() -> None:
            results.extend(await crib.session().call_many([("fs__write", {"path": str(n)}) for n in range(3)]))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            while len(asked := await crib.approvals.pending()) < 3:
                await next_pending(crib)
            for approval in asked:
                verdict: Verdict = "no" if '"1"' in approval.arguments else "yes"
                await crib.approvals.decide(approval.id, Answer(verdict=verdict))

    assert [result.is_error for result in results] == [False, True, False]


# Whose approvals they are


async def test_others_approvals_do_not_exist_and_the_operator_sees_all() -> None:
    async with opened(source()) as crib, anyio.create_task_group() as group:
        group.start_soon(crib.session(principal="ada").call, "fs__write", {"path": "a"})
        asked = await next_pending(crib)
        approvals = crib.approvals

        assert [await approvals.pending(who) for who in (None, "ada", "eve")] == [[asked], [asked], []]
        codes = list[str]()
        for attempt in (
            approvals.get(asked.id, "eve"),
            approvals.decide(asked.id, Answer(verdict="yes"), principal="eve"),
            approvals.result(asked.id, "eve"),
            approvals.get("approval_of_nobody"),
        ):
            with pytest.raises(ToolFailure) as failure:
                await attempt
            codes.append(f"{failure.value.code}: {failure.value.message.replace(asked.id, '…')}")
        assert len(set(codes[:3])) == 1, "the same as for one that does not exist"
        assert {code.partition(":")[0] for code in codes} == {"not_found"}
        with pytest.raises(ToolFailure, match="another call than the one you were shown"):
            await approvals.decide(asked.id, Answer(verdict="yes"), hash="0" * 64)
        await approvals.decide(asked.id, Answer(verdict="no"), principal="ada", hash=asked.hash)


@pytest.mark.slow
async def test_who_watches_sees_every_question_and_every_answer() -> None:
    async with opened(source()) as crib, anyio.create_task_group() as group:
        seen = list[tuple[str, str]]()

        async def watch() -> None:
            async for approval in crib.approvals.watch():
                seen.append((approval.id, approval.state))

        group.start_soon(watch)
        ends: list[tuple[str, Verdict]] = [("denied", "no"), ("used", "yes")]
        for state, verdict in ends:
            group.start_soon(crib.session().call, "fs__write", {"path": "a"})
            asked = await next_pending(crib)
            await eventually(lambda id=asked.id: (id, "pending") in seen)
            await crib.approvals.decide(asked.id, Answer(verdict=verdict))
            await eventually(lambda id=asked.id, state=state: (id, state) in seen)
        group.cancel_scope.cancel()


# What is shown


async def test_what_cannot_be_seen_is_shown_as_an_escape_and_nothing_is_cut() -> None:
    long = "x" * 20_000 + "\u202e\u200b; rm -rf p\u0430th"
    async with opened(source()) as crib, anyio.create_task_group() as group:
        group.start_soon(crib.session().call, "fs__write", {"path": "a", "content": long})
        asked = await next_pending(crib)
        assert '"content": "' + "x" * 20_000 + '\\u202e\\u200b; rm -rf p\\u0430th"' in asked.arguments
        await crib.approvals.decide(asked.id, Answer(verdict="no"))


async def test_a_call_that_writes_a_file_is_shown_with_what_it_would_change(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    approver = RecordingApprover()
    async with opened(source()) as crib:
        session = crib.session(approver=approver, workspace=tmp_path)
        await session.call("fs__write", {"path": "a.txt", "content": "one\nthree\n"})
        await session.call("fs__write", {"path": "new.txt", "content": "all\n"})
        await session.call("fs__write", {"path": "../outside.txt", "content": "all\n"})

    changed, new, outside = (question.diff for question in approver.questions)
    assert changed == "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
    assert new == "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+all\n"
    assert outside.startswith("(../outside.txt: ")


# Callers who leave


async def _left_behind(crib: Toolcrib) -> Approval:
    """Call as somebody who leaves while he waits, and return the question."""
    id = list[str]()
    async with anyio.create_task_group() as group:
        group.start_soon(crib.session(principal="ada", key="k").call, "fs__write", {"path": "a"})
        asked = await next_pending(crib)
        id.append(asked.id)
        group.cancel_scope.cancel()
    return await crib.approvals.get(id[0])


async def test_a_late_yes_to_a_caller_who_left_runs_once_as_a_job_and_the_result_waits() -> None:
    fs = source()
    async with opened(fs, RUN) as crib:
        asked = await _left_behind(crib)
        assert (asked.state, asked.gone) == ("pending", True)

        await crib.approvals.decide(asked.id, Answer(verdict="yes", by="Ada"))
        result = await _eventual(crib, asked.id)
        job = await crib.jobs.get((await crib.approvals.get(asked.id)).job, "ada")

        assert (result.text, fs.calls) == ("mode=7,path=a", [("write", {"mode": 7, "path": "a"})])
        assert (job.status, (await crib.approvals.get(asked.id)).ran) == ("completed", "ok")
        rows = {row.id: row.outcome for row in await crib.store.calls.list()}
        first, late = sorted(rows, key=len)
        assert (rows[first], late, rows[late]) == ("cancelled", f"{first}.late", "ok")


async def test_a_late_no_to_a_caller_who_left_runs_nothing() -> None:
    fs = source()
    async with opened(fs, RUN) as crib:
        asked = await _left_behind(crib)
        await crib.approvals.decide(asked.id, Answer(verdict="no"))

        assert (await crib.approvals.get(asked.id)).state == "denied"
    assert fs.calls == []


async def test_a_rule_that_was_written_meanwhile_holds_against_a_late_yes() -> None:
    fs = source()
    async with opened(fs, RUN) as crib:
        asked = await _left_behind(crib)
        crib.tools.disable("fs__write")
        await crib.approvals.decide(asked.id, Answer(verdict="yes"))
        result = await _eventual(crib, asked.id)

    assert (result.error and result.error.code, fs.calls) == ("disabled", [])


async def test_where_callers_who_left_are_dropped_a_late_yes_is_a_conflict() -> None:
    async with opened(source()) as crib:
        asked = await _left_behind(crib)
        with pytest.raises(ToolFailure) as failure:
            await crib.approvals.decide(asked.id, Answer(verdict="yes"))

    assert (asked.state, failure.value.code) == ("cancelled", "conflict")


async def _eventual(crib: Toolcrib, id: str) -> ToolResult:
    """Return the result that waits under an approval, as soon as it does."""
    while (result := await crib.approvals.result(id)) is None:
        await anyio.sleep(0.01)
    return result


# After a crash

_CRASH = """
import sys, anyio
from pathlib import Path
sys.path.insert(0, {tests!r})
from unit.toolcrib.crib.test_approving import crash
anyio.run(crash, Path({home!r}), {moment!r})
"""


def on_disk(home: Path) -> Settings:
    places = {name: home / name for name in ("config", "data", "state", "cache", "runtime")}
    return bare().with_values(approvals=RUN, directories=bare().directories._replace(**places))


@asynccontextmanager
async def in_a_workshop(home: Path) -> AsyncGenerator[Toolcrib]:
    """A crib on disk whose only tool writes down that it ran; one with the path `stuck` never ends."""

    async def work(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        with (home / "ran").open("a") as file:
            file.write(f"{arguments['path']}\n")
        if arguments["path"] == "stuck":
            await anyio.sleep_forever()
        return ToolResult.of_text("done")

    tool = Tool(name="work", source="fs", local_name="work", input_schema=SCHEMA, execution=Execution(serial=True))
    async with Toolcrib(on_disk(home)) as crib:
        await crib.tools.mount_source(ScriptedSource("fs", {"work": work}, listed=[tool]), trusted=True)
        yield crib


async def crash(home: Path, moment: str) -> None:
    """Die of kill -9 while a question is open, or when its call was approved and waits for its turn to run."""
    async with in_a_workshop(home) as crib, anyio.create_task_group() as group:
        session = crib.session()
        if moment == "approved":
            group.start_soon(session.call, "fs__work", {"path": "stuck"})
            await crib.approvals.decide((await next_pending(crib)).id, Answer(verdict="yes"))
        group.start_soon(session.call, "fs__work", {"path": "a"})
        asked = await next_pending(crib)
        if moment == "approved":
            await crib.approvals.decide(asked.id, Answer(verdict="yes"))
            while (await crib.approvals.get(asked.id)).state != "used" or not (home / "ran").exists():
                await anyio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)


async def _crashed(home: Path, moment: str) -> None:
    code = _CRASH.format(tests=str(Path(__file__).parents[3]), home=str(home), moment=moment)
    killed = await anyio.run_process([sys.executable, "-c", code], check=False)
    assert killed.returncode == -9, killed.stderr.decode()


@pytest.mark.long
@pytest.mark.process
async def test_a_question_survives_kill_9_and_its_call_runs_once_after_a_yes(tmp_path: Path) -> None:
    await _crashed(tmp_path, "pending")
    async with in_a_workshop(tmp_path) as crib:
        (asked,) = await crib.approvals.pending()
        await crib.approvals.decide(asked.id, Answer(verdict="yes"))

        assert (await _eventual(crib, asked.id)).text == "done"
        assert (tmp_path / "ran").read_text() == "a\n"


@pytest.mark.long
@pytest.mark.process
async def test_kill_9_between_approval_and_run_neither_loses_the_call_nor_doubles_one(tmp_path: Path) -> None:
    await _crashed(tmp_path, "approved")
    found = list[tuple[str, str, dict[str, str]]]()
    for _ in range(2):  # the second start finds nothing to do
        async with in_a_workshop(tmp_path) as crib:
            one, other = await crib.approvals.list()
            assert (await _eventual(crib, one.id)).text == "done"
            outcomes = {row.id: row.outcome for row in await crib.store.calls.list()}
            found.append((other.call_id, one.call_id, outcomes))

    assert (tmp_path / "ran").read_text() == "stuck\na\n", "what had begun is not begun again"
    stuck, late, outcomes = found[-1]
    assert outcomes == {stuck: "outcome_unknown", late: "ok"}


SKILL = "---\nname: run\ndescription: Run.\n---\nhello"
PARTS = {
    "run.sh": "echo hello\n",
    "approved_code.py": "import approved_part\n\n\ndef run() -> str:\n    return approved_part.WORD\n",
    "approved_part.py": "WORD = 'hello'\n",
    "package/__main__.py": "",
    "Makefile": "all:\n",
    "how/SKILL.md": SKILL,
    "how/more.txt": "more",
}


@asynccontextmanager
async def of_catalog(folder: Path, entry: str) -> AsyncGenerator[tuple[Toolcrib, YamlSource]]:
    """A crib with a catalog of one entry, `run`, and the files that entries of these tests run or show."""
    for name, text in {**PARTS, "tools.yaml": f"- {entry}\n"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    catalog = YamlSource("cat", folder / "tools.yaml", YamlOptions(poll_seconds=0.02))
    async with Toolcrib(bare(), memory=True) as crib:
        await crib.tools.mount_source(catalog, prefix=False, trusted=True)
        yield crib, catalog


@pytest.mark.process
@pytest.mark.parametrize(
    ("entry", "file", "now"),
    [
        ("{name: run, implementation: {command: [sh, run.sh]}}", "run.sh", "echo changed\n"),
        ("{name: run, implementation: {path: run.sh}}", "run.sh", "echo changed\n"),
        ("{name: run, implementation: {command: [sh, -c, './run.sh && true']}}", "run.sh", "echo changed\n"),
        ("{name: run, implementation: {command: [python, -m, package]}}", "package/__main__.py", "changed = 1\n"),
        ("{name: run, implementation: {command: [sh, ../run.sh], cwd: how}}", "run.sh", "echo changed\n"),
        ("{name: run, implementation: {command: [make]}}", "Makefile", "all:\n\techo changed\n"),
        ("{name: run, implementation: {module: approved_code, function: run}}", "approved_code.py", "run = str\n"),
        ("{name: run, implementation: {module: approved_code, function: run}}", "approved_part.py", "WORD = 'no'\n"),
        ("{name: run, type: SKILL, skill_path: how/SKILL.md}", "how/SKILL.md", f"{SKILL}, changed"),
        ("{name: run, type: SKILL, skill_path: how}", "how/more.txt", "changed"),
        (
            "{name: run, implementation: {command: [echo, hello]}}",
            "tools.yaml",
            "- {name: run, implementation: {command: [echo, changed]}}\n",
        ),
        (
            "{name: run, implementation: {endpoint: {url: 'https://one.example.org/'}}}",
            "tools.yaml",
            "- {name: run, implementation: {endpoint: {url: 'https://two.example.org/'}}}\n",
        ),
    ],
)
async def test_what_a_call_runs_is_what_it_was_when_a_person_was_asked(
    tmp_path: Path, entry: str, file: str, now: str
) -> None:
    hashes = list[str]()

    async def swap(question: Question) -> Answer:
        hashes.append(question.hash)
        before = catalog.implementation_of(question.tool)
        (tmp_path / file).write_text(now)
        await eventually(lambda: catalog.implementation_of(question.tool) != before)
        return Answer(verdict="yes")

    async def look(question: Question) -> Answer:
        hashes.append(question.hash)
        return Answer(verdict="no")

    async with of_catalog(tmp_path, entry) as (crib, catalog):
        swapped = await crib.session(profile="selection", mode="manual", approver=swap).call("run", {})
        await crib.session(profile="selection", mode="manual", approver=look).call("run", {})

    assert (swapped.error and swapped.error.code, len(set(hashes))) == ("definition_changed", 2), "asked anew"


@pytest.mark.parametrize(
    ("entry", "now"),
    [
        ("implementation: {command: [echo, hello]}", "implementation: {command: [echo, changed]}"),
        ("implementation: {command: [env], env: {A: b}}", "implementation: {command: [env], env: {LD_PRELOAD: ./b}}"),
    ],
)
@pytest.mark.process
async def test_an_always_ends_when_the_catalog_runs_something_else_under_the_name(
    tmp_path: Path, entry: str, now: str
) -> None:
    approver = RecordingApprover("always")
    async with of_catalog(tmp_path, f"{{name: run, {entry}}}") as (crib, catalog):
        session = crib.session(profile="selection", mode="manual", approver=approver)
        for _ in range(2):
            await session.call("run", {})
        asked = len(approver.questions)
        before = catalog.implementation_of(approver.questions[0].tool)
        (tmp_path / "tools.yaml").write_text(f"- {{name: run, {now}}}\n")
        await eventually(lambda: catalog.implementation_of(approver.questions[0].tool) != before)
        await session.call("run", {})

    assert (asked, len(approver.questions)) == (1, 2)


@pytest.mark.process
async def test_what_a_late_answer_runs_is_what_it_was_when_the_question_was_asked(tmp_path: Path) -> None:
    async with of_catalog(tmp_path, "{name: run, implementation: {path: run.sh}}") as (crib, _):
        session = crib.session(mode="manual", approver=defer_approval)
        same, other = [pending_approval(await session.call("run", {})) for _ in range(2)]
        assert same is not None and other is not None
        ran = await session.resume(same.approval, Answer(verdict="yes"))
        (tmp_path / "run.sh").write_text("echo changed\n")
        swapped = await session.resume(other.approval, Answer(verdict="yes"))

    assert (ran.text, swapped.error and swapped.error.code) == ("hello\n", "definition_changed")


async def test_a_tool_that_is_defined_anew_while_a_person_is_asked_does_not_run() -> None:
    fs = source()

    async def swap(question: Question) -> Answer:
        fs.set("write", show, replace(question.tool, name="write", description="Write elsewhere."))
        return Answer(verdict="yes")

    async with Toolcrib(bare(), memory=True) as crib:
        await crib.tools.mount_source(fs, trusted=True)
        result = await crib.session(approver=swap).call("fs__write", {"path": "a"})

    assert (result.error and result.error.code, fs.calls) == ("definition_changed", [])


async def test_a_deny_that_is_written_while_a_person_answers_holds() -> None:
    fs = source()

    async def forbid(question: Question) -> Answer:
        session.state.rules = (("deny", ("fs__write",)),)
        return Answer(verdict="yes")

    async with opened(fs) as crib:
        session = crib.session(approver=forbid)
        result = await session.call("fs__write", {"path": "a"})
        (approval,) = await crib.approvals.list()

    assert (result.error and result.error.code, approval.state, fs.calls) == ("denied", "denied", [])


@pytest.mark.process
async def test_a_program_that_cannot_be_looked_at_is_asked_about_and_then_not_there(tmp_path: Path) -> None:
    approver = RecordingApprover("yes")
    async with of_catalog(tmp_path, f"{{name: run, implementation: {{command: [{'x' * 300}]}}}}") as (crib, _):
        result = await crib.session(mode="manual", approver=approver).call("run", {})

    assert (result.error and result.error.code, len(approver.questions)) == ("unavailable", 1)
