"""Tool: the frozen record of something that a model may call.

A `Tool` is a definition. Permissions (policy), visibility (disclosure) and execution (its source) are separate. Two
tools with the same digest are the same tool. What a selection weighs beyond the definition is in its `Capability`, the
record of seed 004.

A source makes it (`sources`), the catalog gives it a unique name (`Tool.renamed`), a profile may show it under another
one. Approvals, grants, saved calls and compiled schemas go by the digest; pins have their own hash (`catalog.pins`).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, Protocol, cast

from msgspec import Struct, field
from msgspec.structs import replace

from .json import canonical

CapabilityType = Literal["TOOL", "SKILL", "CODE"]

Kind = Literal["read", "write", "destructive"]
"""Effect of a call on the world outside: none, a change, or a loss of data."""

TRAITS: Final = (
    "asks_user",
    "by_action",
    "by_method",
    "closed_world",
    "file_reader",
    "file_writer",
    "hands_on",
    "outbound",
    "private",
    "reviewed",
    "store_writer",
    "untrusted",
)
"""The words of `Tool.traits`."""


class Capability(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """The record of one capability, without the fields of `Tool` itself (tags, level, schema)."""

    type: CapabilityType = "TOOL"
    subtype: str = ""
    """PREBUILT, CUSTOM, NATIVE, EXTERNAL, DYNAMIC … as in the catalog file."""
    provider: str = ""
    """Provider: user, system, local …"""
    priority: int = 50
    """0 to 100; the higher is preferred when several fit."""
    cost: Mapping[str, str] = field(default_factory=dict[str, str])
    """`time` and `money`, in the catalog's words: fast, slow, free, high …"""
    constraints: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`requires_api`, `api_name`, `requires_network`, `requires_auth`, `internal_use_only` …"""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fallback_tool: str = ""
    """The tool that does the work when this capability cannot."""
    skill_path: str = ""
    """Path of a skill's SKILL.md, relative to its root."""
    cache_stable: bool = False
    """Its definition never changes within a conversation."""

    explicit: tuple[str, ...] = ()
    """Arguments that a session's context never fills: left out, they mean something of their own."""
    argument_aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other names that callers may use → the argument, also of objects in arguments. Schemas do not show them."""

    def to_json(self) -> dict[str, Any]:
        """Return the differences from a plain tool, as JSON."""
        if self == PLAIN:
            return {}
        return {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) != getattr(PLAIN, name, None)
        }


PLAIN: Final = Capability()
"""A tool of which nothing more is known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """The MCP hints of a tool, with the defaults of the specification (a tool counts as dangerous by default).

    The other fields are displayed by MCP clients and not read by models. They change neither tokens nor pins.
    """

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True
    listed: Mapping[str, Any] | None = dataclasses.field(default=None, compare=False)
    """The MCP `annotations` as the server wrote them, `title` included; None writes out all four hints."""
    icons: tuple[Mapping[str, Any], ...] = dataclasses.field(default=(), compare=False)

    @classmethod
    def from_mcp(
        cls,
        hints: Mapping[str, Any] | None,
        *,
        listed: Mapping[str, Any] | None = None,
        icons: tuple[Mapping[str, Any], ...] = (),
    ) -> Annotations:
        """Read MCP `annotations`; a hint of the wrong type counts as not given."""
        given = hints or {}

        def flag(key: str, default: bool) -> bool:
            value = given.get(key)
            return value if isinstance(value, bool) else default

        return cls(
            read_only=flag("readOnlyHint", False),
            destructive=flag("destructiveHint", True),
            idempotent=flag("idempotentHint", False),
            open_world=flag("openWorldHint", True),
            listed=listed,
            icons=icons,
        )

    @property
    def display(self) -> tuple[str, tuple[Mapping[str, Any], ...]]:
        """The title among the annotations, and the icons."""
        return (self.listed or {}).get("title", ""), self.icons

    @property
    def kind(self) -> Kind:
        """`read`, `write` or `destructive`, the word that rules and modes use."""
        if self.read_only:
            return "read"
        return "destructive" if self.destructive else "write"

    def to_mcp(self) -> dict[str, bool]:
        """Return the four hints, all written out."""
        return {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }


READS: Final = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)
"""Hints of a tool without effects that reaches nothing outside."""


class Migrates(Protocol):
    """Makes arguments of an older version those of the tool that has it; `core.versions.Migration` is one."""

    def to_json(self) -> list[Any]:
        """Return the fields that a digest covers."""
        ...

    def __call__(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the new arguments, and a note for each change."""
        ...


class VersionInfo(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Version of a tool, with its predecessors and its deprecation; most tools have none, and share one.

    Of `read_file` 2.0, `older` may hold 1.9 and 1.8; `migrations` leads from each of them to 2.0 in one step.
    """

    version: str = ""
    deprecated: str = ""
    """Reason for the deprecation; empty if not deprecated."""
    replaced_by: str = ""
    """The name of the tool to use instead."""
    migrations: Mapping[str, Migrates] = field(default_factory=dict[str, Migrates])
    """Migrations of arguments by older version; see `core.versions`."""
    older: tuple[Tool, ...] = ()
    """The other versions under its name, the next best first; they have none themselves."""

    def to_json(self) -> list[Any]:
        """Return the fields that a digest covers."""
        migrations = {version: one.to_json() for version, one in self.migrations.items()}
        return [self.deprecated, self.replaced_by, migrations, [tool.digest.hex() for tool in self.older]]

    @property
    def has_details(self) -> bool:
        """Whether there are fields besides the version."""
        return bool(self.deprecated or self.migrations or self.older)


NO_VERSION_INFO: Final = VersionInfo()


NO_LOCKS: Final = ("",)
"""`Execution.locks` of a tool that hands its arguments on: the one behind it locks them, and would wait for it."""


class Execution(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Time limits and concurrency of the calls of a tool; most tools share the default."""

    timeout: float | None = None
    """Seconds; None takes the default of the session's limits."""
    serial: bool = False
    """True: one call at a time, independent of its arguments."""
    locks: tuple[str, ...] = ()
    """Names of the arguments that identify the resource a write touches; calls with an equal value take turns.

    A dotted name reaches into an argument, through lists too: `operations.path`.
    """
    background_after: float | None = None
    """Seconds after which a call continues in the background; None never does."""
    streaming: bool = False
    """True: sends its result in pieces while it runs."""
    address: str = ""
    """The base URL that calls go to where the source chose it, not the operator: it is reviewed with the definition."""
    implementation: str = ""
    """A hash of what the entry of a catalog says to run: an `always` does not cover another command or URL."""


_DEFAULT_EXECUTION: Final = Execution()


class Guidance(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Advice for the model beside the description."""

    examples: Sequence[Mapping[str, Any]] = ()
    """Valid arguments, best first."""
    policy: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Advice by kind: `do`, `dont`, `edge_cases`."""


_NO_GUIDANCE: Final = Guidance()


class Availability(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Sessions that may know of a tool."""

    contexts: tuple[str, ...] = ()
    """Kinds of session that have this tool; empty is all of them."""
    needs: tuple[str, ...] = ()
    """Conditions that a session must meet, else the tool is out of scope there: `workspace`."""
    missing: str = ""
    """Missing requirement of this machine or configuration, as the description says; empty if the tool can run."""


EVERY_SESSION: Final = Availability()


class Tool(Struct, frozen=True, kw_only=True, repr_omit_defaults=True, eq=False, dict=True):
    """One callable capability. Lives as long as a catalog that holds it; never changes.

    `name` is unique in a catalog and valid for every model API (see `catalog.names`); `local_name` is the source's own
    name. Schemas are JSON Schema 2020-12 as the source gave them and must not be mutated.

    The JSON of a tool is written once, when `digest` is first read; equality and hash are those of the digest.
    """

    name: str
    source: str
    local_name: str
    original_name: str = ""
    """The source's own name where a combinator gave it another one: a deny or an ask of it holds for this tool."""
    description: str = ""
    title: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    output_schema: Mapping[str, Any] | None = None
    annotations: Annotations = Annotations()
    op: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    core: bool = False
    version_info: VersionInfo = NO_VERSION_INFO
    approval: Literal["never", "mode", "always"] = "mode"
    origin: str = ""
    """The kind of its source: `python`, `mcp`, `yaml`, `skill`, `openapi`, `rest`, `plugin`."""
    capability: Capability = PLAIN
    """Weights for a selection."""
    execution: Execution = _DEFAULT_EXECUTION
    guidance: Guidance = _NO_GUIDANCE
    availability: Availability = EVERY_SESSION
    traits: tuple[str, ...] = ()
    """Properties that the pipeline relies on.

    `file_reader` (it works without a workspace, and reads a file of it that an argument names), `file_writer` (all
    its writes go through `Context.workspace`), `untrusted` (its results contain foreign text), `reviewed` (the
    foreign text is vouched for), `outbound` (it can send data elsewhere), `private` (it reads private data),
    `closed_world` (the operator confirms `openWorldHint: false`), `asks_user` (it only asks the user; it may run
    while a plan is made), `by_method` (it sends requests: its argument `method` decides whether a call reads,
    writes or destroys), `by_action` (a call reads where `reads` in its metadata, such as `{"action": ["look"]}`,
    lists the value of an argument), `hands_on` (a built-in tool that only makes calls of others, each decided by
    itself).
    Built-in tools alone may be `resumable`: begun again after a crash, such a tool continues, by `Context.first_call`.
    """
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The MCP `_meta` of the definition, passed through."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tool) and (self is other or self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def renamed(self, name: str) -> Tool:
        """Return the tool under another name."""
        return self if name == self.name else replace(self, name=name)

    @property
    def kind(self) -> Kind:
        """`read`, `write` or `destructive`."""
        return self.annotations.kind

    def is_among(self, words: Collection[str]) -> bool:
        """Whether its origin, category or name is one of `words`."""
        return bool(words) and (self.origin in words or self.category in words or self.name in words)

    @property
    def version(self) -> str:
        """The version that the source declares; empty without one."""
        return self.version_info.version

    @property
    def deprecated(self) -> str:
        """Reason for the deprecation; empty if not deprecated."""
        return self.version_info.deprecated

    @property
    def replaced_by(self) -> str:
        """The name of the tool to use instead of a deprecated one."""
        return self.version_info.replaced_by

    @property
    def migrations(self) -> Mapping[str, Migrates]:
        """Migrations of arguments by older version."""
        return self.version_info.migrations

    @property
    def older(self) -> tuple[Tool, ...]:
        """The other versions under its name, the next best first."""
        return self.version_info.older

    @property
    def explicit(self) -> tuple[str, ...]:
        """Arguments that a session's context never fills: only the caller gives them."""
        return self.capability.explicit

    @property
    def summary(self) -> str:
        """The first sentence of the description, at most 120 characters."""
        text = " ".join(self.description.split()) or self.title
        head, dot, _ = text.partition(". ")
        head = head + "." if dot else head
        return head if len(head) <= 120 else head[:119].rstrip() + "…"

    @property
    def definition(self) -> dict[str, Any]:
        """The definition as a model sees it, and as a pin covers it. Made at each use: most of many are never shown."""
        shown: dict[str, Any] = {"name": self.name}
        if self.title:
            shown["title"] = self.title
        if self.description:
            shown["description"] = self.description
        shown["inputSchema"] = self.input_schema
        if self.output_schema is not None:
            shown["outputSchema"] = self.output_schema
        shown["annotations"] = self.annotations.to_mcp()
        if self.meta:
            shown["_meta"] = self.meta
        return shown

    @property
    def listed(self) -> dict[str, Any]:
        """The definition as an MCP client gets it: with icons, and with annotations as the server wrote them.

        SDKs refuse a whole list for one schema of arguments that does not say that they are an object, or one property
        that is `true` instead of `{}`.
        """
        definition, annotations = self.definition, self.annotations
        for key in ("inputSchema", "outputSchema"):
            if key in definition:
                definition[key] = _with_object_properties(definition[key])
        if "type" not in self.input_schema:
            definition["inputSchema"] = {"type": "object", **definition["inputSchema"]}
        if annotations.listed is None and not annotations.icons:
            return definition
        shown = {**definition, **({"icons": annotations.icons} if annotations.icons else {})}
        if annotations.listed is not None:
            shown["annotations"] = annotations.listed
        return shown if shown["annotations"] else {key: value for key, value in shown.items() if key != "annotations"}

    @cached_property
    def digest(self) -> bytes:
        """32 bytes over every property that a model, a rule or a caller can see, and over what a catalog writes to run.

        Fields that most tools lack are covered only where they are set: a new one leaves the digests of other tools,
        and so their stored approvals and jobs, as they were. `availability.missing` is not covered.
        """
        metadata = (
            self.source,
            self.local_name,
            self.op,
            self.category,
            self.tags,
            self.aliases,
            self.core,
            self.version,
            self.approval,
            self.execution.timeout,
            self.execution.serial,
            self.execution.locks,
            self.guidance.examples,
            self.guidance.policy,
            self.origin,
            self.capability.to_json(),
            self.availability.contexts,
            self.execution.streaming,
            self.execution.background_after,
            *(("original_name", self.original_name) if self.original_name else ()),
            *(("traits", self.traits) if self.traits else ()),
            *(("address", self.execution.address) if self.execution.address else ()),
            *(("implementation", self.execution.implementation) if self.execution.implementation else ()),
            *(("needs", self.availability.needs) if self.availability.needs else ()),
            *(("version_info", self.version_info.to_json()) if self.version_info.has_details else ()),
            *(("display", *display) if (display := self.annotations.display) != ("", ()) else ()),
        )
        return hashlib.blake2b(canonical([self.definition, metadata]), digest_size=32).digest()


def _with_object_properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema with objects for the booleans among its properties; itself where there are none."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return schema
    of_objects: dict[str, Any] = {}
    for name, one in cast("Mapping[str, Any]", properties).items():
        of_objects[name] = ({} if one else {"not": {}}) if isinstance(one, bool) else one
    return {**schema, "properties": of_objects} if of_objects != properties else schema
