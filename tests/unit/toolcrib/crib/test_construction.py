"""How a crib is made: of a file, of keywords, of settings; and the options that sessions and calls take."""

import inspect
import json
import pickle
from pathlib import Path
from typing import Any, cast

import pytest

from toolcrib import Toolcrib, ToolFailure, ToolResult, UsageError, tool
from toolcrib.config import bare, load
from toolcrib.config.keys import KEYS
from toolcrib.crib.options import ApiOptions, CallOptions, CribOptions, SessionOptions
from toolcrib.errors import ConfigError, ConfigErrors
from toolcrib.sources.python.declaration import ToolOptions

CONFIG = """\
mode: autonomous
rules: {deny: [pay]}
servers: {github: {command: github-server, disabled: true}}
profile: flat
"""


@tool(kind="write")
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(kind="write")
async def note(text: str) -> str:
    """Write a note."""
    return text


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)


def _error(*given: Any, **keywords: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        Toolcrib(*given, **keywords)
    return caught.value


@pytest.mark.parametrize("kind", [str, Path])
async def test_a_crib_is_what_its_file_says(tmp_path: Path, kind: type) -> None:
    file = tmp_path / "toolcrib.yaml"
    file.write_text(CONFIG)

    crib = Toolcrib(kind(file))

    assert crib.settings == load([file])
    assert (crib.settings.policy.mode, crib.settings.policy.rules.deny, crib.settings.disclosure.profile) == (
        "autonomous",
        ("pay",),
        "flat",
    )
    assert Path(crib.store.place) == crib.settings.directories.data / "toolcrib.db"


async def test_keywords_make_the_same_crib_as_a_file_and_read_none(tmp_path: Path) -> None:
    own = tmp_path / "home" / ".config" / "toolcrib" / "config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("profile: tiered\n")
    servers = {"files": {"command": "files-server", "args": ["--port", 80], "env": {"KEY": "s3cret-s3cret"}}}

    crib = Toolcrib(mode="autonomous", rules={"deny": ["pay"], "allow": ["note"]}, servers=servers, memory=True)

    assert (crib.settings.policy.mode, crib.settings.disclosure.profile, crib.settings.files) == (
        "autonomous",
        "adaptive",
        (),
    )
    assert (crib.settings.policy.rules.deny, crib.settings.policy.rules.allow) == (("pay",), ("note",))
    [spec] = crib.settings.sources.servers
    assert (spec.name, spec.command, spec.args) == ("files", "files-server", ("--port", "80"))
    assert spec.cwd == str(Path.cwd())
    assert "s3cret-s3cret" in crib.settings.secrets
    assert crib.settings.sources.builtins is False


async def test_rules_of_keywords_decide(tmp_path: Path) -> None:
    async with Toolcrib(mode="autonomous", rules={"deny": ["pay"]}) as crib, crib.session() as session:
        crib.add(pay, note)

        refused, done = await session.call("pay", {"amount": 3}), await session.call("note", {"text": "x"})

    assert (refused.error and refused.error.code, done.text) == ("denied", "x")


async def test_keywords_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "toolcrib.yaml"
    file.write_text(CONFIG)

    crib = Toolcrib(file, mode="manual", servers={"github": {"command": "other"}}, memory=True)

    assert (crib.settings.policy.mode, crib.settings.disclosure.profile) == ("manual", "flat")
    assert [spec.command for spec in crib.settings.sources.servers] == ["other"]
    assert [problem.code for problem in crib.problems] == ["duplicate"]


async def test_a_store_of_keywords_outlives_the_process_and_without_one_nothing_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "calls.db"
    async with Toolcrib(store=place, mode="autonomous") as crib, crib.session() as session:
        crib.add(note)
        await session.call("note", {"text": "kept"})

    async with Toolcrib(store=str(place)) as crib:
        rows = await crib.store.calls.list()

    assert [(row.tool, row.outcome) for row in rows] == [("note", "ok")]
    assert Path(crib.store.place) == place
    assert Toolcrib(mode="autonomous").parts.storage.folders.home is None
    assert not (tmp_path / "home" / ".local" / "share" / "toolcrib" / "toolcrib.db").exists()


def test_editors_know_every_key_of_the_configuration() -> None:
    assert CribOptions.__annotations__.keys() == {*KEYS, "servers", "mcpServers", "sources"} - {"memory"}


def test_paths_are_taken_where_a_file_has_a_text(tmp_path: Path) -> None:
    (tmp_path / "office.yaml").write_text("[]\n")
    crib = Toolcrib(workspace=tmp_path, skills=[tmp_path], catalogs=[tmp_path / "office.yaml"])

    sources = crib.settings.sources
    assert crib.settings.workspace.roots == (tmp_path,)
    assert [catalog.path for catalog in sources.catalogs] == [tmp_path / "office.yaml"]
    assert sources.skills is not None
    assert [root.path for root in sources.skills.roots] == [tmp_path]


async def test_a_store_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "calls.db"

    with pytest.raises(ToolFailure) as caught:
        async with Toolcrib(store=str(place)):
            pass
    assert (caught.value.code, str(place) in str(caught.value.__cause__)) == ("storage", True)


def test_a_store_of_a_file_lies_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "toolcrib.yaml"
    file.write_text("store: calls.db\n")

    assert Toolcrib(file).store.place == str(tmp_path / "calls.db")


@pytest.mark.parametrize(
    ("keywords", "key", "nearest"),
    [
        ({"moed": "plan"}, "moed", "'mode'"),
        ({"server": {}}, "server", "'servers'"),
        ({"rules": {"denny": []}}, "rules.denny", "'deny'"),
        ({"limits": {"timeuot": 3}}, "limits.timeuot", "'timeout'"),
        ({"mode": "cautios"}, "mode", "'cautious'"),
        ({"servers": [1]}, "servers", ""),
        ({"sources": {"opnapi": {}}}, "sources.opnapi", "'openapi'"),
        ({"store": 3}, "store", ""),
        ({"store": {"url": "postgres://db/x", "path": "x.db"}}, "store", ""),
        ({"store": "mysql://db"}, "store", ""),
    ],
)
def test_a_wrong_keyword_is_the_error_that_the_same_line_of_a_file_is(
    tmp_path: Path, keywords: dict[str, Any], key: str, nearest: str
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(json.dumps(keywords))

    by_keyword, by_file = _error(**keywords), _error(file)

    assert by_keyword.key == by_file.key
    assert by_keyword.key.startswith(key)
    assert by_keyword.file == ""
    assert str(by_file).endswith(str(by_keyword))
    assert nearest in str(by_keyword)


def test_all_wrong_keywords_are_named_at_once() -> None:
    error = _error(moed="plan", limits={"timeuot": 3})

    assert isinstance(error, ConfigErrors)
    assert [one.key for one in error.errors] == ["moed", "limits.timeuot"]


def test_a_server_that_cannot_be_taken_is_a_problem_and_hides_no_other() -> None:
    crib = Toolcrib(servers={"bad": {"comand": "x"}, "good": {"command": "y"}})

    assert [spec.name for spec in crib.settings.sources.servers] == ["good"]
    assert [(problem.source, problem.code) for problem in crib.problems] == [("bad", "bad_config")]
    assert "'command'" in crib.problems[0].message


async def test_a_server_that_cannot_be_taken_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with Toolcrib(servers={"bad": {"comand": "x"}}) as crib:
        assert [record.getMessage() for record in caplog.records] == [crib.problems[0].message]


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert _error(tmp_path / "no.yaml").file == str(tmp_path / "no.yaml")


def test_what_is_no_configuration_is_refused() -> None:
    cases: list[tuple[Any, dict[str, Any]]] = [
        ({"mode": "plan"}, {}),
        (3, {}),
        (bare(), {"mode": "plan"}),
        (None, {"befor": []}),
    ]
    for given, keywords in cases:
        with pytest.raises(UsageError):
            Toolcrib(given, **keywords)


def test_functions_where_settings_belong_are_refused_with_the_call_that_adds_them() -> None:
    for given, keywords in ((note, {}), ([note], {}), (None, {"tools": [note]})):
        with pytest.raises(UsageError, match=r"crib\.add\(function\)"):
            Toolcrib(given, **keywords)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="first argument"):
        Toolcrib(config="toolcrib.yaml")  # pyright: ignore[reportCallIssue]


async def test_a_program_calls_a_tool_without_a_session() -> None:
    async with Toolcrib(mode="autonomous") as crib:
        crib.add(note)
        done = await crib.call("note", {"text": "x"})
        rows = await crib.store.calls.list()
        with pytest.raises(UsageError, match="'timeout'"):
            await crib.call("note", {"text": "x"}, timeuot=3)  # pyright: ignore[reportCallIssue]

    assert (done.text, [row.tool for row in rows]) == ("x", ["note"])


async def test_what_would_never_be_heard_is_an_error() -> None:
    async def hears(event: Any) -> None: ...

    async with Toolcrib() as crib, crib.session() as session:
        crib.add(note)
        with pytest.raises(UsageError, match="listener is called and not awaited"):
            await session.call("note", {"text": "x"}, listener=hears)  # pyright: ignore[reportArgumentType]
        with pytest.raises(UsageError, match="a subscriber is called and not awaited"):
            crib.calls.on_finished(hears)  # pyright: ignore[reportArgumentType]


async def test_options_of_single_calls_are_checked_before_any_of_them_runs() -> None:
    async with Toolcrib() as crib, crib.session() as session:
        crib.add(note)
        two = [("note", {"text": "x"}), ("note", {"text": "y"})]
        with pytest.raises(UsageError, match="there is no option 'timeot'; did you mean 'timeout'"):
            await session.call_many(two, each=[{}, {"timeot": 3}])  # pyright: ignore[reportArgumentType]
        with pytest.raises(UsageError, match=r"no option 'text'; a tool's arguments are one mapping: call\(name"):
            await session.call("note", text="x")  # pyright: ignore[reportCallIssue]
        with pytest.raises(UsageError, match="each: has the options of 1 calls, and there are 2"):
            await session.call_many(two, each=[{}])
        rows = await crib.store.calls.list()

    assert rows == []


async def test_an_option_that_does_not_exist_is_an_error_with_the_nearest_one() -> None:
    async with Toolcrib() as crib:
        crib.add(note)
        with pytest.raises(UsageError, match="'allowed_tools'"):
            crib.session(alowed_tools=["note"])  # pyright: ignore[reportCallIssue]
        with pytest.raises(UsageError, match="approver is a function of the question, not str"):
            crib.session(approver="ada")  # pyright: ignore[reportArgumentType]
        with pytest.raises(UsageError, match="elicitor is a function of the question, not str"):
            crib.session(elicitor="ada")  # pyright: ignore[reportArgumentType]
        with pytest.raises(UsageError, match="context is a mapping of arguments to their values, not \\['text'\\]"):
            crib.session(context=["text"])  # pyright: ignore[reportArgumentType]
        async with crib.session() as session:
            with pytest.raises(UsageError, match="'timeout'"):
                await session.call("note", {"text": "x"}, timeuot=3)  # pyright: ignore[reportCallIssue]
            with pytest.raises(UsageError, match="timeout: a number of seconds above 0 was expected, not '3'"):
                await session.call("note", {"text": "x"}, timeout="3")  # pyright: ignore[reportArgumentType]
            with pytest.raises(UsageError, match="'required_capabilities'"):
                session.begin(required_capability=[])  # pyright: ignore[reportCallIssue]
            with pytest.raises(UsageError, match="timeout"):
                await session.call("note", {"text": "x"}, xyz=3)  # pyright: ignore[reportCallIssue]


async def test_one_text_is_no_list_of_names_or_of_letters() -> None:
    async with Toolcrib() as crib:
        crib.add(note)
        for option in ("allowed_tools", "contexts", "required_capabilities", "tools"):
            given: Any = {option: "note"}
            with pytest.raises(UsageError, match=rf"{option}=\['note'\]"):
                crib.session(**given)
        with pytest.raises(UsageError, match=r"tools=\['note'\]"):
            await crib.tools.accept("python", "note")
        with pytest.raises(UsageError, match="class of a feature, such as `Workflows`, not 'workflows'"):
            crib.slice("workflows")  # pyright: ignore[reportArgumentType]


async def test_add_is_a_decorator_that_leaves_the_function() -> None:
    crib = Toolcrib(mode="autonomous")

    @crib.add
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    four: int = double(2)  # the type checker reads this, too
    async with crib:
        result = await crib.call("double", {"number": 4})

    assert (four, result.text, crib.add(pay, note)) == (4, "8", None)


def test_a_machine_without_room_for_temporary_files_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none() -> str:
        raise FileNotFoundError

    monkeypatch.setattr("tempfile.gettempdir", find_none)
    with pytest.raises(UsageError, match="TMPDIR"):
        Toolcrib(memory=True)


def test_an_error_crosses_processes_whole() -> None:
    for error in (
        ToolFailure("denied", "no", hint="ask", details={"rule": 1}),
        ConfigErrors([ConfigError("wrong", file="a.yaml", key=key) for key in ("mode", "store")]),
    ):
        again = cast("Exception", pickle.loads(pickle.dumps(error)))
        assert (type(again), str(again), repr(vars(again))) == (type(error), str(error), repr(vars(error)))


@pytest.mark.parametrize(
    ("name", "value"), [("principal", 3), ("principal", ""), ("user", None), ("instance", 4), ("mode", "none")]
)
def test_a_session_of_a_wrong_option_is_refused_and_leaves_nothing(name: str, value: Any) -> None:
    crib = Toolcrib()
    options: Any = {"key": "k", name: value}
    with pytest.raises(UsageError, match=name) as caught:  # it holds the frames, and so what was made
        crib.session(**options)

    assert (crib.sessions.find("local", "k"), caught.value.__cause__) == (None, None)


def test_an_option_of_sessions_is_named_as_one() -> None:
    with pytest.raises(UsageError, match=r"crib\.session\(approver=…\)"):
        Toolcrib(approver=print)  # pyright: ignore[reportCallIssue]


async def test_a_crib_and_its_sessions_show_their_state_on_the_screen() -> None:
    crib = Toolcrib()
    assert repr(crib) == "<Toolcrib, not open yet: 0 tools, 0 problems>"
    async with crib:
        crib.add(note)
        session = crib.session(principal="ada", key="k", mode="manual")
        assert repr(session) == "<Session of ada: profile adaptive, mode manual, key 'k'>"
        assert repr(crib) == "<Toolcrib, open: 1 tools, 0 problems>"
    assert repr(crib) == "<Toolcrib, closed: 1 tools, 0 problems>"
    assert repr(ToolResult.of_text("x")) == "ToolResult(content=({'type': 'text', 'text': 'x'},))"


def test_help_lists_each_option_of_a_crib_and_of_a_tool() -> None:
    shown = [set(inspect.signature(function).parameters) for function in (Toolcrib, tool)]

    assert shown[0] == {"settings", "before", "after", "memory", *CribOptions.__annotations__}
    assert shown[1] == {"function", *ToolOptions.__annotations__}


def test_help_of_an_object_lists_each_option_of_its_methods() -> None:
    crib = Toolcrib()
    shown = [set(inspect.signature(method).parameters) for method in (crib.session, crib.call, crib.load)]

    assert shown == [
        set(SessionOptions.__annotations__),
        {"name", "arguments", *CallOptions.__annotations__},
        {"path", "name", *ApiOptions.__annotations__},
    ]
