"""What stands behind an entry runs: code with its context, programs without a shell, requests, and skills."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from peers.api import api
from peers.catalog import KIND, context, opened
from rig import PATIENCE, eventually
from toolcrib.core.result import ToolResult
from toolcrib.errors import ToolFailure

TOOLS = '''
import threading
import time

started = []


class Recall:
    """A class as the seed has them."""

    def __init__(self):
        started.append(self)

    async def execute(self, params, context):
        return {
            "success": True,
            "params": params,
            "who": [context.session_id, context.user_id, context.instance_id],
            "instances": len(started),
        }


class Blocking:
    def execute(self, params):
        return f"{params['x']} in {threading.current_thread() is not threading.main_thread()}"


class Failing:
    def execute(self, params, context):
        return {"success": False, "error": "no credit", "error_type": "rate_limited", "recovery_hint": "wait"}


class Streaming:
    async def execute(self, params, context):
        yield "one "
        yield "two"


def plain(x, context):
    return f"{x} for {context.user_id}"


def raising():
    raise OSError("disk on fire")


def wrong():
    return {"found": "no boolean"}
'''


def _code(how: str, **keys: str) -> str:
    more = "".join(f"  {key}: {value}\n" for key, value in keys.items())
    return f"- name: t\n  implementation: {{module: my_tools.recall, {how}}}\n{more}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "my_tools"
    package.mkdir()
    (package / "recall.py").write_text(TOOLS, encoding="utf-8")
    return tmp_path


async def test_a_class_gets_its_parameters_and_the_context_and_lives_as_long_as_the_catalog(folder: Path) -> None:
    async with opened(folder, _code("class: Recall")) as catalog:
        await catalog.call("t", query="x")
        result = await catalog.call("t", query="y")

    assert result.structured_content == {
        "success": True,
        "params": {"query": "y"},
        "who": ["s1", "ann", "i1"],
        "instances": 1,
    }


@pytest.mark.parametrize(
    ("how", "text"),
    [("class: Blocking", "5 in True"), ("function: plain", "5 for ann"), ("class: Streaming", "one two")],
)
async def test_blocking_classes_functions_and_streams_run(folder: Path, how: str, text: str) -> None:
    async with opened(folder, _code(how)) as catalog:
        assert catalog.tool("t").execution.streaming is (text == "one two")
        arguments = {} if catalog.tool("t").execution.streaming else {"x": 5}
        assert (await catalog.call("t", **arguments)).text == text


async def test_the_failure_that_a_class_of_the_seed_reports_is_a_failure(folder: Path) -> None:
    async with opened(folder, _code("class: Failing")) as catalog:
        with pytest.raises(ToolFailure) as caught:
            await catalog.call("t")

    failure = caught.value
    assert (failure.code, failure.message, failure.hint) == ("tool_error", "no credit", "wait")
    assert failure.details == {"error_type": "rate_limited"}


async def test_an_exception_is_a_failure_that_says_so(folder: Path) -> None:
    async with opened(folder, _code("function: raising")) as catalog:
        with pytest.raises(ToolFailure, match="t failed: OSError: disk on fire"):
            await catalog.call("t")


async def test_a_result_that_breaks_the_promised_schema_is_withheld(folder: Path) -> None:
    schema = "{type: object, properties: {found: {type: boolean}}}"
    async with opened(folder, _code("function: wrong", output_schema=schema)) as catalog:
        with pytest.raises(ToolFailure, match="did not return what its output_schema declares"):
            await catalog.call("t")


async def test_nothing_of_a_module_runs_before_the_first_call_and_one_that_breaks_then_is_unavailable(
    folder: Path,
) -> None:
    (folder / "my_tools" / "recall.py").write_text("def f():\n    pass\nraise RuntimeError('at import')\n")
    async with opened(folder, _code("function: f")) as catalog:
        assert catalog.problems == []
        with pytest.raises(ToolFailure, match=r"not loaded: my_tools\.recall\.f: RuntimeError: at import") as caught:
            await catalog.call("t")

    assert caught.value.code == "unavailable"


async def test_a_catalog_without_code_loads_none(folder: Path) -> None:
    async with opened(folder, _code("class: Recall"), code=None) as catalog:
        assert catalog.problems == [("unavailable", "t")]
        assert "may not load code" in catalog.listing.problems[0].message


async def test_a_module_that_a_link_takes_out_of_its_root_is_refused(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside.py"
    outside.write_text("def f(): pass\n")
    (folder / "my_tools" / "linked.py").symlink_to(outside)
    text = "- name: t\n  implementation: {module: my_tools.linked, function: f}\n"
    async with opened(folder, text) as catalog:
        assert "leads out of" in catalog.listing.problems[0].message


async def test_further_folders_for_code_are_the_operators_to_name(folder: Path, tmp_path: Path) -> None:
    inner = tmp_path / "config"
    inner.mkdir()
    async with opened(inner, _code("function: plain"), code=(folder,)) as catalog:
        assert (await catalog.call("t", x=1)).text == "1 for ann"


COMMANDS = """\
- name: say
  input_schema: {properties: {a: {}, b: {}, all: {type: array}, n: {}}}
  implementation:
    command: [printf, "<%s>", "{a}", "b={b}", [-n, "{n}"], "{all}", "{{a}}"]
- name: operand
  implementation: {command: [env, --, echo, "{a}"]}
- name: stdin
  implementation: {command: [cat], stdin: json, output: json}
- name: status
  implementation: {command: [sh, -c, "echo out; echo no such thing >&2; exit 3"]}
- name: nojson
  implementation: {command: [echo, hello], output: json}
- name: missing
  implementation: {command: [no-such-program-anywhere]}
- name: flood
  implementation: {command: [sh, -c, "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaa; done"], max_output: 5000}
- name: orphan
  implementation: {command: [sh, -c, "sleep 300 & echo done"]}
- name: environment
  implementation: {command: [sh, -c, 'echo "$SECRET_TOKEN|$MODE|$HOME"'], env: {MODE: fast}}
- name: hang
  implementation: {command: [sh, -c, "trap '' TERM; echo $$ > {where}; sleep 300 & wait; sleep 300"]}
"""


@pytest.mark.process
async def test_arguments_stay_apart_whatever_they_hold(tmp_path: Path) -> None:
    async with opened(tmp_path, COMMANDS) as catalog:
        assert catalog.problems == []
        result = await catalog.call("say", a="x y; $(id) `id` *", b='"', all=["1", 2, {"k": None}], n=7)
        assert result.text == '<x y; $(id) `id` *><b="><-n><7><1><2><{"k":null}><{a}>'


@pytest.mark.process
async def test_what_was_not_given_is_left_out_with_what_belongs_to_it(tmp_path: Path) -> None:
    async with opened(tmp_path, COMMANDS) as catalog:
        assert (await catalog.call("say", a="1")).text == "<1><{a}>"


@pytest.mark.process
@pytest.mark.parametrize("value", ["-rf", "--output=/etc/passwd", "-"])
async def test_a_value_that_looks_like_an_option_is_refused_unless_it_cannot_be_one(tmp_path: Path, value: str) -> None:
    async with opened(tmp_path, COMMANDS) as catalog:
        with pytest.raises(ToolFailure, match="would be taken for an option") as caught:
            await catalog.call("say", a=value)
        assert caught.value.code == "invalid_arguments"
        assert (await catalog.call("operand", a=value)).text == f"{value}\n"
        assert (await catalog.call("say", b=value)).text == f"<b={value}><{{a}}>"


async def test_a_nul_cannot_cut_an_argument(tmp_path: Path) -> None:
    async with opened(tmp_path, COMMANDS) as catalog:
        with pytest.raises(ToolFailure, match="NUL"):
            await catalog.call("say", a="a\0b")


@pytest.mark.process
async def test_arguments_can_come_as_json_and_results_go_as_json(tmp_path: Path) -> None:
    async with opened(tmp_path, COMMANDS) as catalog:
        result = await catalog.call("stdin", deep={"er": [1, None]})
        assert result.structured_content == {"deep": {"er": [1, None]}}


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("status", "tool_error", "status ended with status 3: no such thing"),
        ("nojson", "tool_error", "nojson printed no JSON"),
        ("missing", "unavailable", "no-such-program-anywhere cannot be started: No such file or directory"),
        ("flood", "too_large", "has more than 5,000 bytes"),
    ],
)
async def test_a_program_that_fails_says_why(tmp_path: Path, name: str, code: str, message: str) -> None:
    async with opened(tmp_path, COMMANDS) as catalog:
        with pytest.raises(ToolFailure, match=message) as caught:
            await catalog.call(name)
        assert caught.value.code == code


@pytest.mark.process
async def test_a_program_sees_the_harmless_part_of_our_environment_and_its_own(tmp_path: Path) -> None:
    ours = {"SECRET_TOKEN": "x", "HOME": "/nowhere", "PATH": "/usr/bin:/bin"}
    async with opened(tmp_path, COMMANDS, environment=ours) as catalog:
        assert (await catalog.call("environment")).text == "|fast|/nowhere\n"


@pytest.mark.process
async def test_a_child_left_in_the_background_neither_delays_the_result_nor_stays(tmp_path: Path) -> None:
    async with opened(tmp_path, COMMANDS) as catalog:
        with anyio.fail_after(PATIENCE):
            assert (await catalog.call("orphan")).text == "done\n"


@pytest.mark.process
async def test_a_cancelled_program_ends_with_its_whole_group_even_if_it_will_not(tmp_path: Path) -> None:
    where = tmp_path / "pid"
    async with opened(tmp_path, COMMANDS) as catalog:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: catalog.call("hang", where=str(where)))
            await eventually(lambda: where.exists() and where.read_text().strip())
            group.cancel_scope.cancel()
        group_id = int(where.read_text())
        assert await _gone(group_id)


async def _gone(group_id: int) -> bool:
    def gone() -> bool:
        return not any(_group_of(stat) == group_id for stat in Path("/proc").glob("[0-9]*/stat"))

    await eventually(gone)
    return True


def _group_of(stat: Path) -> int:
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] == "Z" else int(fields[2])


@pytest.mark.process
async def test_a_script_beside_the_catalog_gets_its_arguments_as_json(tmp_path: Path) -> None:
    (tmp_path / "report.py").write_text("import json, sys\nprint(json.load(sys.stdin)['x'] * 2, sys.argv[1:])\n")
    text = "- name: r\n  type: CODE\n  implementation: {path: report.py, args: ['--of={x}']}\n"
    async with opened(tmp_path, text) as catalog:
        assert catalog.tool("r").capability.type == "CODE"
        assert (await catalog.call("r", x="ab")).text == "abab ['--of=ab']\n"


async def _busy(request: Request) -> Response:
    return PlainTextResponse("later", status_code=503, headers={"retry-after": "7"})


async def _secret(request: Request) -> Response:
    return PlainTextResponse(f"you sent {request.headers.get('authorization')}")


@asynccontextmanager
async def _api() -> AsyncGenerator[str]:
    async with api({"GET /busy": _busy, "GET /secret": _secret}) as running:
        yield running.origin


def _endpoints(url: str) -> str:
    return f"""\
- name: get
  input_schema: {{properties: {{id: {{}}, tags: {{}}, page: {{}}}}}}
  implementation:
    endpoint: {{url: "{url}/items/{{id}}/x", query: {{tag: "{{tags}}", page: "{{page}}"}}, allow_private: true}}
- name: post
  input_schema: {{properties: {{id: {{}}, text: {{}}}}}}
  implementation: {{endpoint: {{method: POST, url: "{url}/items/{{id}}", allow_private: true}}}}
- name: shaped
  implementation:
    endpoint: {{method: POST, url: "{url}/", body: '{{{{"q": {{text}}}}}}', allow_private: true}}
- name: busy
  implementation: {{endpoint: {{url: "{url}/busy", allow_private: true}}}}
- name: secret
  implementation:
    endpoint: {{url: "{url}/secret", headers: {{Authorization: "Bearer ${{API_KEY}}"}}, allow_private: true}}
- name: guarded
  implementation: {{endpoint: {{url: "{url}/"}}}}
"""


async def test_an_argument_fills_its_place_in_a_request_and_nothing_else(tmp_path: Path) -> None:
    async with _api() as url, opened(tmp_path, _endpoints(url).replace("${API_KEY}", "k")) as catalog:
        got = await catalog.call("get", id="a/../b?c=d#e", tags=["x&y", "z"])
        posted = await catalog.call("post", id="7", text="hi", more=1)
        shaped = await catalog.call("shaped", text='say "hi"')

        seen = {key: got.structured_content[key] for key in ("method", "path", "query", "body")}
        assert seen == {
            "method": "GET",
            "path": "/items/a%2F..%2Fb%3Fc%3Dd%23e/x",
            "query": "tag=x%26y&tag=z",
            "body": "",
        }
        assert posted.structured_content["body"] == '{"text":"hi","more":1}'
        assert shaped.structured_content["body"] == '{"q": "say \\"hi\\""}'


@pytest.mark.parametrize("value", ["", ".", "..", "..;x=1", "..\0"])
async def test_a_value_that_would_name_another_address_is_refused(tmp_path: Path, value: str) -> None:
    async with _api() as url, opened(tmp_path, _endpoints(url).replace("${API_KEY}", "k")) as catalog:
        with pytest.raises(ToolFailure) as caught:
            await catalog.call("get", id=value)
        assert caught.value.code == "invalid_arguments"


async def test_an_error_status_is_a_failure_with_what_the_server_said(tmp_path: Path) -> None:
    async with _api() as url, opened(tmp_path, _endpoints(url).replace("${API_KEY}", "k")) as catalog:
        with pytest.raises(ToolFailure, match="busy: HTTP 503: later") as caught:
            await catalog.call("busy")
        assert caught.value.code == "unavailable"
        assert caught.value.details == {"status": 503, "body": "later", "retry_after": "7"}


async def _moved(request: Request) -> Response:
    return PlainTextResponse("", status_code=302, headers={"location": "/elsewhere"})


async def _between(request: Request) -> Response:
    return PlainTextResponse("no answer from behind", status_code=504)


@pytest.mark.parametrize(
    ("path", "method", "code", "message"),
    [
        ("moved", "POST", "tool_error", "HTTP 302: redirects elsewhere, which is not followed"),
        ("between", "POST", "outcome_unknown", "HTTP 504: no answer from behind"),
        ("between", "GET", "unavailable", "HTTP 504: no answer from behind"),
    ],
)
async def test_a_write_that_did_not_arrive_or_may_have_is_no_success(
    tmp_path: Path, path: str, method: str, code: str, message: str
) -> None:
    handlers = {"POST /moved": _moved, "POST /between": _between, "GET /between": _between}
    async with api(handlers) as running:
        endpoint = f'{{method: {method}, url: "{running.origin}/{path}", allow_private: true}}'
        async with opened(tmp_path, f"- name: t\n  implementation: {{endpoint: {endpoint}}}\n") as catalog:
            with pytest.raises(ToolFailure) as caught:
                await catalog.call("t")

    assert (caught.value.code, caught.value.message) == (code, f"t: {message}")


async def test_a_private_address_is_not_reached_unless_the_entry_allows_it(tmp_path: Path) -> None:
    async with _api() as url, opened(tmp_path, _endpoints(url).replace("${API_KEY}", "k")) as catalog:
        with pytest.raises(ToolFailure, match="is not a public address") as caught:
            await catalog.call("guarded")
        assert caught.value.code == "denied"


async def test_a_secret_of_the_environment_is_used_and_never_shown(tmp_path: Path) -> None:
    def expand(text: str) -> str:
        return text.replace("${API_KEY}", "k3y-that-nobody-may-see")

    async with _api() as url, opened(tmp_path, _endpoints(url), expand=expand) as catalog:
        text = (await catalog.call("secret")).text
        assert text.startswith("you sent Bearer ")
        assert "k3y-that" not in text


async def test_a_dry_run_shows_the_request_or_the_command_and_no_secret_and_sends_nothing(tmp_path: Path) -> None:
    def expand(text: str) -> str:
        return text.replace("${API_KEY}", "k3y-that-nobody-may-see")

    entries = _endpoints("http://127.0.0.1:1") + KIND
    async with opened(tmp_path, entries, expand=expand) as catalog:

        def told(name: str, **arguments: Any) -> str | None:
            return catalog.source.describe(catalog.tool(name), arguments)

        accept = "-H 'accept: application/json, text/*;q=0.9, */*;q=0.5'"
        assert told("get", id="a b", page=2) == f"curl 'http://127.0.0.1:1/items/a%20b/x?page=2' {accept}"
        assert told("post", id=1, text="it's") == (
            f"curl -X POST http://127.0.0.1:1/items/1 {accept} -H 'content-type: application/json'"
            """ --data-binary '{"text":"it'"'"'s"}'"""
        )
        assert told("echo", text="a; rm b") == "printf %s 'a; rm b'"
        assert "k3y-that" not in str(told("secret"))
        with pytest.raises(ToolFailure, match="id is needed"):
            told("get")


async def test_an_mcp_tool_is_called_through_whoever_opened_the_catalog(tmp_path: Path) -> None:
    asked: list[tuple[Any, ...]] = []

    async def call_tool(server: str, tool: str, arguments: Any, given: Any) -> ToolResult:
        asked.append((server, tool, arguments, given.principal))
        return ToolResult.of_text("from far")

    text = "- name: t\n  implementation: {mcp: {server: files, tool: read_file}}\n"
    async with opened(tmp_path, text, call_tool=call_tool) as catalog:
        assert (await catalog.call("t", path="a")).text == "from far"

    assert asked == [("files", "read_file", {"path": "a"}, "ann")]


async def test_a_skill_of_a_catalog_returns_its_text_and_its_files(tmp_path: Path) -> None:
    skill = tmp_path / "skills" / "greeting"
    (skill / "references").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: greeting\ndescription: How to greet.\n---\nSay hello.\n")
    (skill / "references" / "words.md").write_text("hello, hi")
    text = "- name: greet\n  type: SKILL\n  skill_path: skills/greeting/SKILL.md\n"
    async with opened(tmp_path, text) as catalog:
        assert catalog.tool("greet").kind == "read"
        assert (await catalog.call("greet")).structured_content == {
            "name": "greeting",
            "description": "How to greet.",
            "body": "Say hello.",
            "files": ["references/words.md"],
        }
        assert (await catalog.call("greet", reference="references/words.md")).text == "hello, hi"
        with pytest.raises(ToolFailure, match="leads outside"):
            await catalog.call("greet", reference="../../capabilities.yaml")


async def test_a_call_of_what_is_not_there_any_more_is_not_found(tmp_path: Path) -> None:
    async with opened(tmp_path, "- name: a\n  implementation: {command: [ls]}\n") as catalog:
        tool = catalog.tool("a")
        await catalog.write("capabilities: []\n")
        with pytest.raises(ToolFailure) as caught:
            await catalog.source.call(tool, {}, context())
        assert caught.value.code == "not_found"


async def test_a_module_that_never_ends_loading_keeps_no_other_from_being_loaded(folder: Path) -> None:
    gate = folder / "gate"
    (folder / "my_tools" / "stuck.py").write_text(
        f"import pathlib, time\npathlib.Path({str(gate)!r}).touch()\n"
        f"while pathlib.Path({str(gate)!r}).exists():\n    time.sleep(0.01)\n"
        "def f():\n    return 'late'\n"
    )
    (folder / "my_tools" / "quick.py").write_text("def f():\n    return 'quick'\n")
    text = "".join(
        f"- name: {name}\n  implementation: {{module: my_tools.{name}, function: f}}\n" for name in ("stuck", "quick")
    )
    async with opened(folder, text) as catalog, anyio.create_task_group() as group:
        group.start_soon(catalog.call, "stuck")
        await eventually(gate.exists)
        try:
            with anyio.fail_after(PATIENCE):
                assert (await catalog.call("quick")).text == "quick"
        finally:
            gate.unlink()
