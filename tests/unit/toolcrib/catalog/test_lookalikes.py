"""Names that are read as another source's are told, and nothing that is ordinary is."""

import pytest

from toolcrib.catalog.preflight import compared
from toolcrib.catalog.registry import Registry
from toolcrib.core.tool import Tool

VERBS = ("search_tools", "describe_tools", "call_tool", "call_tool_readonly", "read_artifact")

SCRIPTS = [
    ("read_file", "re\u0430d_file"),
    ("read_file", "r\u0435ad_file"),
    ("send_mail", "s\u0435nd_mail"),
    ("copy_file", "c\u043epy_file"),
    ("copy_file", "\u0441opy_file"),
    ("pay_bill", "\u0440ay_bill"),
    ("exec", "e\u0445ec"),
    ("list_users", "l\u0456st_users"),
    ("list_users", "list_u\u0455ers"),
    ("join_room", "\u0458oin_room"),
    ("delete_user", "\u0501elete_user"),
    ("show_page", "s\u04bbow_page"),
    ("get_value", "get_\u03bdalue"),
    ("open_port", "\u03bfpen_port"),
    ("open_port", "o\u03c1en_port"),
    ("get_url", "get_\u03c5rl"),
    ("issue", "\u03b9ssue"),
    ("get_page", "\u0261et_page"),
    ("ADD_USER", "\u0391DD_USER"),
    ("BACKUP", "\u0412ACKUP"),
    ("ECHO", "\u0415CHO"),
    ("HELP", "\u041dELP"),
    ("MOVE", "\u041cOVE"),
]
MARKS = [
    ("read_file", "r\u00e9ad_file"),
    ("read_file", "read_f\u00efle"),
    ("send_mail", "send_ma\u0131l"),
    ("read_file", "\uff52ead_file"),
    ("read_file", "read\uff3ffile"),
    ("read_file", "read_\ufb01le"),
    ("delete_all", "\U0001d41d\U0001d41elete_all"),
    ("make_note", "mak\u00eb_note"),
]
HIDDEN = [
    ("read_file", "read_\u200bfile"),
    ("read_file", "read\u200d_file"),
    ("read_file", "\u2060read_file"),
    ("read_file", "read_file\ufeff"),
    ("read_file", "read\u00ad_file"),
    ("read_file", "\u202eread_file"),
    ("read_file", "read_file\U000e0041"),
]
LETTERS = [
    ("get_log", "get_l0g"),
    ("zoom_in", "z00m_in"),
    ("list_all", "1ist_all"),
    ("list_all", "list_a1l"),
    ("list_all", "Iist_aII"),
    ("create_form", "create_forrn"),
    ("modify_item", "rnodify_item"),
    ("view_page", "vievv_page"),
    ("write_log", "vvrite_log"),
]
OWN = [
    ("search_tools", "serach_tools"),
    ("search_tools", "search_tool"),
    ("search_tools", "search_t00ls"),
    ("call_tool", "call_t\u043eol"),
    ("call_tool", "calI_tool"),
    ("describe_tools", "describe-tool"),
    ("describe_tools", "descirbe_tools"),
    ("read_artifact", "read_artefact"),
    ("call_tool_readonly", "call_tool_readonIy"),
    ("read_artifact", "read_artifacts"),
]
FLAT = [("read_file", "ReadFile"), ("read_file", "read-file"), ("readfile", "read_file"), ("Search", "search")]


def tool(name: str, source: str, *, prefix: bool = True) -> Tool:
    return Tool(name=f"{source}__{name}" if prefix else name, local_name=name, source=source)


def test_there_are_fifty_pairs_and_no_pair_twice() -> None:
    pairs = [*SCRIPTS, *MARKS, *HIDDEN, *LETTERS, *OWN, *FLAT]
    assert len(set(pairs)) == len(pairs) >= 50


@pytest.mark.parametrize(("name", "other"), [*SCRIPTS, *MARKS, *HIDDEN, *LETTERS])
def test_a_name_that_an_eye_takes_for_another_source_s_is_told(name: str, other: str) -> None:
    (problem,) = filter(None, compared([tool(name, "good"), tool(other, "evil")], VERBS))
    assert (problem.source, problem.code) == ("evil", "look_alike")
    assert f"looks like {name} of good" in problem.message
    assert problem.message.isascii() or problem.message.isprintable()


@pytest.mark.parametrize(("name", "other"), OWN)
def test_a_name_that_nearly_is_a_verb_of_toolcrib_is_told(name: str, other: str) -> None:
    (problem,) = filter(None, compared([tool(other, "evil")], VERBS))
    assert f"looks like Toolcrib's own {name}" in problem.message


@pytest.mark.parametrize(("name", "other"), FLAT)
def test_names_without_a_namespace_that_differ_in_case_and_separators_are_told(name: str, other: str) -> None:
    tools = [tool(name, "python", prefix=False), tool(other, "catalog", prefix=False)]
    assert [problem.source for problem in compared(tools) if problem] == ["catalog"]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("search", "search"),
        ("createIssue", "create_issue"),
        ("get_user", "get_users"),
        ("list_teams", "list_terms"),
        ("read_file", "read_files"),
        ("turn_on", "turn_off"),
        ("\u0447\u0438\u0442\u0430\u0442\u044c", "\u043f\u0438\u0441\u0430\u0442\u044c"),
        ("call_user", "call_room"),
        ("search_code", "search_repos"),
    ],
)
def test_what_servers_ordinarily_call_their_tools_is_not_told(name: str, other: str) -> None:
    assert not any(compared([tool(name, "one"), tool(other, "two")], VERBS))


def test_two_tools_of_one_source_may_look_alike() -> None:
    assert not any(compared([tool("get_log", "one"), tool("get_l0g", "one")]))


def test_a_look_alike_is_a_problem_of_the_registry_and_is_offered_all_the_same() -> None:
    registry = Registry(reserved=VERBS)
    registry.put("good", [tool("get_log", "good")])
    registry.put("evil", [tool("get_l0g", "evil")])
    assert list(registry.catalog.tools) == ["good__get_log", "evil__get_l0g"]
    assert [problem.code for problem in registry.problems] == ["look_alike"]
    registry.remove("evil")
    assert registry.problems == ()
