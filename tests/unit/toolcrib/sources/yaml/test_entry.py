"""An entry of a catalog is seed 004's record, whole; what is wrong in it is told with file, line and key."""

from pathlib import Path

import pytest

from peers.catalog import opened
from toolcrib.core.tool import Annotations, Availability, Capability, Execution, Guidance, Tool, VersionInfo

SEED = """\
tool_classification:
  serial_only_tools: [memory_recall]
capability_categories:
- id: user_profile
capabilities:
- name: memory_recall
  type: TOOL              # TOOL | SKILL | CODE
  subtype: NATIVE
  provider: user
  level: 1                # 1 = core (always available), 2+ = optional
  state_category: searching
  implementation:
    command: [echo, "{query}"]
  capabilities:           # Semantic tags for selection
    - memory
    - user_profile
  priority: 70            # Higher = preferred when multiple tools match
  cost:
    time: fast
    money: free
  constraints:
    requires_api: false
    requires_network: false
  metadata:
    description: |
      What the user told.
    cache_stable: true
    owner: ann
  fallback_tool: other
  input_schema:
    type: object
    properties: {query: {type: string}, limit: {type: integer, default: 10}}
    required: [query]
"""


async def test_the_record_of_the_seed_is_taken_whole(tmp_path: Path) -> None:
    async with opened(tmp_path, SEED) as catalog:
        assert catalog.problems == []
        (listed,) = catalog.listing.tools
        assert (listed,) == (
            Tool(
                name="memory_recall",
                local_name="memory_recall",
                source="cat",
                origin="yaml",
                description="What the user told.",
                category="user_profile",
                tags=("memory", "user_profile"),
                core=True,
                execution=Execution(serial=True, implementation=listed.execution.implementation),
                input_schema={
                    "type": "object",
                    "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "default": 10}},
                    "required": ["query"],
                },
                capability=Capability(
                    type="TOOL",
                    subtype="NATIVE",
                    provider="user",
                    priority=70,
                    cost={"time": "fast", "money": "free"},
                    constraints={"requires_api": False, "requires_network": False},
                    metadata={"owner": "ann", "state_category": "searching"},
                    fallback_tool="other",
                    cache_stable=True,
                ),
            ),
        )


async def test_our_own_keys_say_what_a_decorated_function_can_say(tmp_path: Path) -> None:
    text = """\
- name: find
  title: Find things
  description: Finds.
  category: search
  op: thing.find
  aliases: [lookup]
  kind: read
  annotations: {openWorldHint: false}
  approval: always
  timeout: 5
  background_after: 2.5
  contexts: [desktop]
  serial: true
  locks: [path]
  version: 1.10
  examples: [{path: a}]
  policy: {do: [be quick], dont: be slow}
  output_schema: {type: object, properties: {found: {type: boolean}}}
  implementation: {command: [ls, "{path}"], output: json}
"""
    async with opened(tmp_path, text) as catalog:
        assert catalog.problems == []
        listed = catalog.tool("find")
        assert listed == Tool(
            name="find",
            local_name="find",
            source="cat",
            origin="yaml",
            title="Find things",
            description="Finds.",
            category="search",
            op="thing.find",
            aliases=("lookup",),
            annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
            approval="always",
            execution=Execution(
                timeout=5,
                background_after=2.5,
                serial=True,
                locks=("path",),
                implementation=listed.execution.implementation,
            ),
            availability=Availability(contexts=("desktop",)),
            version_info=VersionInfo(version="1.10"),
            guidance=Guidance(examples=({"path": "a"},), policy={"do": ("be quick",), "dont": ("be slow",)}),
            input_schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
            output_schema={"type": "object", "properties": {"found": {"type": "boolean"}}},
        )


@pytest.mark.parametrize(
    ("written", "priority"), [("low", 30), ("Medium", 50), ("high", 80), ("critical", 90), ("0", 0), ("~", 50)]
)
async def test_a_priority_is_a_number_or_a_word(tmp_path: Path, written: str, priority: int) -> None:
    async with opened(tmp_path, f"- name: a\n  priority: {written}\n  implementation: {{command: [ls]}}\n") as catalog:
        assert catalog.tool("a").capability.priority == priority


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("type: TOOLL", "capabilities.yaml:3: bad.type: 'TOOLL' is not one of TOOL, SKILL, CODE; did you mean 'TOOL'?"),
        ("priority: 101", "capabilities.yaml:3: bad.priority: 0 to 100 or one of low, medium, high, critical"),
        ("priority: urgent", "capabilities.yaml:3: bad.priority: 0 to 100 or one of"),
        ("level: 0", "capabilities.yaml:3: bad.level: a level of 1 (core) or more was expected"),
        ("level: one", "capabilities.yaml:3: bad.level: a level of 1 (core) or more was expected"),
        ("capabilities: {a: b}", "capabilities.yaml:3: bad.capabilities: a list of strings was expected"),
        ("enabled: sometimes", "capabilities.yaml:3: bad.enabled: true or false was expected"),
        ("timeout: -1", "capabilities.yaml:3: bad.timeout: a number above 0 was expected"),
        ("cost: cheap", "capabilities.yaml:3: bad.cost: a mapping was expected"),
        ("input_schema: {type: array}", "capabilities.yaml:3: bad.input_schema: the arguments are an object"),
        ("input_schema: {properties: 5}", "capabilities.yaml:3: bad.input_schema: "),
        ("annotations: {readOnly: true}", "capabilities.yaml:3: bad.annotations.readOnly: "),
        ("examples: [1]", "capabilities.yaml:3: bad.examples: the example 1 is not valid for the input_schema"),
        ("locks: [nothing]", "capabilities.yaml:3: bad.locks: names 'nothing'"),
        ("kind: harmless", "capabilities.yaml:3: bad.kind: 'harmless' "),
        (
            "input_schema: {properties: {q: {pattern: '('}}}",
            "capabilities.yaml:3: bad.input_schema: ",
        ),
    ],
)
async def test_a_wrong_value_costs_its_entry_alone_and_is_named(tmp_path: Path, line: str, problem: str) -> None:
    text = (
        f"- name: bad\n  implementation: {{command: [ls]}}\n  {line}\n- name: good\n  implementation: {{command: [ls]}}"
    )
    async with opened(tmp_path, text) as catalog:
        assert [tool.name for tool in catalog.listing.tools] == ["good"]
        assert catalog.problems == [("bad_tool", "bad")]
        assert problem in catalog.listing.problems[0].message


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("{}", "bad.implementation: "),
        ("{comand: [ls]}", "path is needed; did you mean 'command'?"),
        ("{endpoint: 'https://a/'}", "bad.implementation.endpoint: a mapping with `url` and `method` was expected"),
        ("{module: a, command: [b]}", "bad.implementation: has module and command: exactly one of"),
        ("{module: tools.x}", "bad.implementation: exactly one of `class` and `function` is needed"),
        ("{module: 'a b', class: X}", "bad.implementation.module: 'a b' "),
        ("{command: ls -l}", "bad.implementation.command: a list was expected"),
        ("{command: []}", "bad.implementation.command: a list was expected: the program, then its arguments"),
        ("{command: ['{a}']}", "bad.implementation.command: the program itself is fixed"),
        ("{command: [ls, '{a']}", "bad.implementation.command: '{' at character 1 stands alone"),
        ("{command: [ls, '${NOT_SET}']}", "bad.implementation.command: "),
        ("{endpoint: {url: 'ftp://x/'}}", "bad.implementation.endpoint.url: an http:// or https:// URL"),
        ("{endpoint: {url: 'https://{a}/'}}", "bad.implementation.endpoint.url: an argument may not choose the host"),
        ("{endpoint: {url: 'https://a.{b}/'}}", "bad.implementation.endpoint.url: an argument may not choose the host"),
        ("{endpoint: {method: GRAB, url: 'https://a/'}}", "bad.implementation.endpoint.method: 'GRAB' is not one of"),
        *(
            (
                f'{{endpoint: {{url: "https://a/", headers: {{x: "a{end}y: b"}}}}}}',
                "bad.implementation.endpoint.headers: ",
            )
            for end in (r"\r\n", r"\n", r"\r", r"\0", r"\x1b", r"\x7f")
        ),
        ("{mcp: {server: a}}", "bad.implementation.mcp.tool: is missing"),
    ],
)
async def test_an_implementation_that_cannot_run_is_refused_when_it_is_read(
    tmp_path: Path, written: str, problem: str
) -> None:
    async with opened(tmp_path, f"- name: bad\n  implementation: {written}\n") as catalog:
        assert catalog.problems == [("bad_tool", "bad")]
        assert problem in catalog.listing.problems[0].message
        assert "capabilities.yaml:2: " in catalog.listing.problems[0].message


async def test_an_argument_that_the_schema_does_not_have_is_found_before_anything_runs(tmp_path: Path) -> None:
    text = "- name: a\n  input_schema: {properties: {x: {}}}\n  implementation: {command: [ls, '{y}']}\n"
    async with opened(tmp_path, text) as catalog:
        assert "{y} is not an argument of the input_schema" in catalog.listing.problems[0].message


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("- name: a\n  type: SKILL\n", "it has no implementation"),
        ("- name: a\n  implementation: {module: nowhere.at_all, class: X}\n", "nowhere.at_all"),
        ("- name: a\n  implementation: {module: json, class: Nothing}\n", "has no class Nothing"),
        ("- name: a\n  implementation: {mcp: {server: s, tool: t}}\n", "no MCP servers can be called from here"),
        ("- name: a\n  implementation: {path: ../../etc/passwd}\n", "leads out of the catalog's folder"),
        ("- name: a\n  implementation: {path: run.py}\n", "no file run.py beside the catalog"),
        ("- name: a\n  skill_path: none/SKILL.md\n", "no file none/SKILL.md beside the catalog"),
    ],
)
async def test_what_is_declared_and_cannot_be_called_is_a_problem_with_the_reason(
    tmp_path: Path, entry: str, reason: str
) -> None:
    async with opened(tmp_path, entry) as catalog:
        assert catalog.listing.tools == ()
        assert catalog.problems == [("unavailable", "a")]
        assert reason in catalog.listing.problems[0].message


async def test_an_unknown_key_is_told_with_the_nearest_and_costs_nothing(tmp_path: Path) -> None:
    text = "- name: a\n  priorty: 5\n  implementation: {command: [ls], outputs: json}\nother: 1\n"
    async with opened(tmp_path, f"capabilities:\n{text}") as catalog:
        known = "capabilities, tool_classification, capability_categories, skill_groups"
        assert [tool.name for tool in catalog.listing.tools] == ["a"]
        told = [problem.message.partition("capabilities.yaml:")[2] for problem in catalog.listing.problems]
        assert told == [
            f"5: other: unknown key, not used; there are {known}",
            "3: a.priorty: unknown key, not used; did you mean 'priority'?",
            "4: a.implementation.outputs: unknown key, not used; did you mean 'output'?",
        ]


async def test_an_entry_with_several_mistakes_names_them_together(tmp_path: Path) -> None:
    text = "- name: a\n  descripton: A\n  kind: reed\n  implementation: {comand: [ls]}\n"
    async with opened(tmp_path, text) as catalog:
        places = [problem.message.partition("capabilities.yaml:")[2][:8] for problem in catalog.listing.problems]
        assert (catalog.problems, places) == ([("bad_tool", "a")] * 3, ["4: a.imp", "3: a.kin", "2: a.des"])


async def test_a_required_argument_that_is_not_declared_is_a_problem(tmp_path: Path) -> None:
    schema = "{type: object, properties: {path: {type: string}}, required: [pat]}"
    entry = f"- name: a\n  implementation: {{command: [ls]}}\n  input_schema: {schema}\n"
    async with opened(tmp_path, entry) as catalog:
        assert "required` names 'pat'" in catalog.listing.problems[0].message
        assert "did you mean 'path'?" in catalog.listing.problems[0].message


async def test_an_endpoint_is_invoked_as_a_program_unless_the_entry_says_otherwise(tmp_path: Path) -> None:
    entry = "- name: {}\n  {}implementation: {{endpoint: {{url: 'https://a/'}}}}\n"
    written = "capabilities:\n" + entry.format("sky", "") + entry.format("tides", "invocation_hint: streaming\n  ")
    async with opened(tmp_path, written) as catalog:
        hints = {tool.name: tool.capability.metadata.get("invocation_hint") for tool in catalog.listing.tools}

    assert hints == {"sky": "programmatic", "tides": "streaming"}


async def test_of_two_entries_with_one_name_the_first_counts(tmp_path: Path) -> None:
    text = "- name: a\n  title: one\n  implementation: {command: [ls]}\n- name: a\n  title: two\n"
    async with opened(tmp_path, text) as catalog:
        assert [tool.title for tool in catalog.listing.tools] == ["one"]
        assert "capabilities.yaml:4: a stands here a second time; the first one, on line 1, counts" in (
            catalog.listing.problems[0].message
        )


async def test_a_switched_off_entry_is_not_there_and_no_problem(tmp_path: Path) -> None:
    async with opened(tmp_path, "- name: a\n  enabled: false\n  nonsense: [\n".replace("[\n", "1\n")) as catalog:
        assert (catalog.listing.tools, catalog.listing.problems) == ((), ())


async def test_invisible_characters_are_removed_from_what_a_model_reads(tmp_path: Path) -> None:
    text = '- name: a\n  description: "seen\\u200b\\U000E0041hidden"\n  implementation: {command: [ls]}\n'
    async with opened(tmp_path, text) as catalog:
        assert catalog.tool("a").description == "seenhidden"
        assert "2 invisible characters were removed" in catalog.listing.problems[0].message


async def test_groups_of_a_catalog_can_be_expanded(tmp_path: Path) -> None:
    text = "capabilities: []\nskill_groups:\n  data: {skills: [a-b], capabilities: [x]}\n"
    async with opened(tmp_path, text) as catalog:
        assert catalog.source.groups.expand(["data"]).capabilities == ("x",)
