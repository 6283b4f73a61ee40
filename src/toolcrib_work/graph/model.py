"""The graph as data: kinds of entities with their fields and states, relations with their ends, and the tables.

A kind's `fields` are JSON Schemas: for writes, for `util.schema.field_info` and for the columns of its table.

Three sorts of relations: a parent contains an entity (`has_task`), a document another one (`contains`), and semantic
ones, which say why two entities belong together (`depends_on`). The first two decide what is inside what; an entity
may have several parents. Every entity but a milestone can be contained by its project.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct, field

from toolcrib.plugin import Schema, Table, Validator, compile_schema

from .calendar_tables import CALENDARS, EVENT_COLUMNS, EVENT_INDEXES, FORMER_CALENDAR, NOT_DELETING

TITLE: Final = 500
"""Characters of a title or a name."""
_CONTENT: Final = 200_000
"""Characters of a document; of every other long text a third: an issue of GitHub has up to 65,536."""
CONTENT_ALIASES: Final = MappingProxyType(dict.fromkeys(("body", "markdown", "body_markdown", "text"), "content"))
"""Usual names of a document's content."""
MAX_CHILDREN: Final = 10_000
"""Entities that one entity contains."""
TREE_HISTORY: Final = 50
"""States of a document tree that are kept."""
VERSION_HISTORY: Final = 50
"""Earlier versions of a document that are kept."""

_JSON_TYPES: Final = {"integer": "INTEGER", "number": "REAL", "boolean": "INTEGER", "object": "JSON", "array": "JSON"}

_TITLE: Final = {"type": "string", "minLength": 1, "maxLength": TITLE, "pattern": r"\S"}
_LONG: Final = {"type": ["string", "null"], "maxLength": _CONTENT // 3}
_SHORT: Final = {"type": ["string", "null"], "maxLength": TITLE}
_TIME: Final = {"type": ["string", "null"], "maxLength": 40, "description": "ISO 8601 date or time"}
_PRIORITY: Final = {"type": ["integer", "null"], "minimum": 1, "maximum": 5, "description": "From 1, the highest, to 5"}

DONE: Final[Mapping[str, str]] = MappingProxyType({"task": "done", "goal": "achieved", "milestone": "completed"})
"""Kinds with `completed_at` → the state that sets it; leaving the state clears it."""

PARENTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "goal": ("project",),
        "milestone": ("goal",),
        "plan": ("milestone", "goal", "project"),
        "task": ("plan", "milestone", "goal", "project"),
        "risk": ("task", "plan", "milestone", "goal", "project"),
        "requirement": ("milestone", "goal", "project"),
        "metric": ("task", "plan", "milestone", "goal", "project"),
        "event": ("task", "plan", "milestone", "goal", "project"),
        "source": ("project",),
        "document": ("project",),
    }
)
"""Kind → the kinds that may contain it, the nearest first."""

CONTEXT_DOCUMENT: Final = "has_context_document"

_WORK: Final = ("task", "plan", "goal")

DEPRECATED: Final[Mapping[str, tuple[str, bool]]] = MappingProxyType(
    {
        "belongs_to_plan": ("has_task", True),
        "part_of": ("contains", True),
        "referenced_by": ("references", True),
        "mitigated_by": ("mitigates", True),
        "achieved_by": ("supports_goal", True),
        "supports": ("supports_goal", False),
    }
)
"""Old name → the relation, and whether its ends change places."""


def _facets() -> dict[str, Any]:
    words: dict[str, Any] = {"type": ["string", "null"], "maxLength": 100}
    return {
        "type": "object",
        "properties": {"context": words, "scale": words, "stage": words},
        "additionalProperties": False,
    }


def _props(**more: Any) -> dict[str, Any]:
    """Return the schema of a kind's props: facets and the named ones are checked, others are free."""
    return {
        "type": "object",
        "properties": {"facets": _facets(), **more},
        "maxProperties": 100,
        "description": "Free properties; `facets` are context, scale and stage.",
    }


class Kind(Struct, frozen=True, kw_only=True, dict=True):
    """One kind of entity."""

    name: str
    label: str
    """The field that names an entity: its title, name or text."""
    fields: Mapping[str, Mapping[str, Any]]
    """Own fields → JSON Schema."""
    states: tuple[str, ...] = ()
    """The first is the initial one."""
    types: str = ""
    """Pattern of type keys."""
    default_type: str = ""
    type_example: str = ""
    """Example of a type, for a kind without a default type."""
    text: tuple[str, ...] = ()
    """Fields that a search reads beside the label."""
    times: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    props: Mapping[str, Any] = field(default_factory=_props)
    required: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict[str, str])
    """Columns that callers read and do not write."""
    indexes: tuple[tuple[str, ...], ...] = (
        ("project_id", "state_key", "deleted_at"),
        ("project_id", "updated_at DESC", "id"),
    )
    shown: str = "1 = 1"
    """Condition of the rows that reads show."""
    listed_by: str = "search_ontology"

    @property
    def plural(self) -> str:
        """Name of the table, and of lists in results."""
        return self.name.removesuffix("y") + "ies" if self.name.endswith("y") else f"{self.name}s"

    @cached_property
    def usual(self) -> dict[str, Any]:
        """Values of an entity that was given no others: lists and graphs leave them out."""
        return {**self.defaults, "type_key": self.default_type}

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of what a caller may write."""
        properties: dict[str, Any] = {**self.fields, **({"props": self.props} if self.props else {})}
        if self.states:
            properties["state_key"] = {"type": "string", "enum": list(self.states)}
        if self.types:
            known = {"examples": [self.type_example]} if self.type_example else {}
            properties["type_key"] = {"type": "string", "pattern": self.types, "maxLength": 200, **known}
        return {"type": "object", "properties": properties, "additionalProperties": False}

    @cached_property
    def validator(self) -> Validator:
        """The compiled schema."""
        return compile_schema(self.schema)

    @cached_property
    def table(self) -> Table:
        """The table of this kind."""
        return Table(
            name=self.plural,
            noun=self.name,
            listed_by=self.listed_by,
            columns={
                **{name: _column(schema) for name, schema in self.fields.items()},
                "state_key": "TEXT",
                "type_key": "TEXT",
                **({"props": "JSON NOT NULL"} if self.props else {}),
                **self.kept,
            },
            indexes=self.indexes,
            title=self.label,
            text=self.text,
        )


def _column(schema: Mapping[str, Any]) -> str:
    kind = schema["type"]
    first = kind if isinstance(kind, str) else kind[0]
    return _JSON_TYPES.get(first, "TEXT")


_ALL: Final = (
    Kind(
        name="project",
        label="name",
        states=("planning", "active", "completed", "cancelled"),
        types=r"^project\.(creative|technical|business|service|education|personal)(\.[a-z0-9_]+)+$",
        type_example="project.business.launch",
        fields={
            "name": _TITLE,
            "description": _LONG,
            "is_public": {"type": "boolean"},
            "start_at": _TIME,
            "end_at": _TIME,
            "next_step_short": _SHORT,
            "next_step_long": _LONG,
        },
        defaults={"is_public": False},
        text=("description", "next_step_long"),
        times=("start_at", "end_at"),
        required=("name", "type_key"),
        kept={"doc_structure": "JSON NOT NULL"},
        listed_by="list_onto_projects",
    ),
    Kind(
        name="task",
        label="title",
        states=("todo", "in_progress", "blocked", "done"),
        types=r"^task\.(execute|create|refine|research|review|coordinate|admin|plan)(\.[a-z0-9_]+)*$",
        default_type="task.execute",
        fields={
            "title": _TITLE,
            "description": _LONG,
            "priority": _PRIORITY,
            "start_at": _TIME,
            "due_at": _TIME,
        },
        defaults={"priority": 3},
        text=("description",),
        times=("start_at", "due_at"),
        required=("title",),
        kept={"completed_at": "TEXT"},
    ),
    Kind(
        name="plan",
        label="name",
        states=("draft", "active", "completed"),
        types=r"^plan\.(timebox|pipeline|campaign|roadmap|process|phase)(\.[a-z0-9_]+)*$",
        default_type="plan.phase.project",
        fields={"name": _TITLE, "plan": _LONG, "description": _LONG},
        text=("plan", "description"),
        props=_props(start_date=_TIME, end_date=_TIME),
        required=("name",),
    ),
    Kind(
        name="goal",
        label="name",
        states=("draft", "active", "achieved", "abandoned"),
        types=r"^goal\.(outcome|metric|behavior|learning)(\.[a-z0-9_]+)*$",
        default_type="goal.outcome.project",
        fields={
            "name": _TITLE,
            "goal": _LONG,
            "description": _LONG,
            "target_date": _TIME,
            "measurement_criteria": _LONG,
        },
        text=("goal", "description", "measurement_criteria"),
        times=("target_date",),
        required=("name",),
        kept={"completed_at": "TEXT"},
    ),
    Kind(
        name="document",
        label="title",
        states=("draft", "in_review", "ready", "published", "archived"),
        types=r"^document\.(default|(context|knowledge|spec|reference|intake)(\.[a-z0-9_]+)*)$",
        default_type="document.default",
        fields={
            "title": _TITLE,
            "description": _LONG,
            "content": {"type": ["string", "null"], "maxLength": _CONTENT, "description": "Markdown"},
        },
        text=("description", "content"),
        required=("title",),
        kept={"version": "INTEGER NOT NULL"},
    ),
    Kind(
        name="milestone",
        label="title",
        states=("pending", "in_progress", "completed", "missed"),
        fields={"title": _TITLE, "description": _LONG, "due_at": _TIME},
        text=("description",),
        times=("due_at",),
        required=("title",),
        kept={"completed_at": "TEXT"},
    ),
    Kind(
        name="risk",
        label="title",
        states=("identified", "mitigated", "occurred", "closed"),
        types=r"^risk\.(technical|schedule|resource|budget|scope|external|quality)(\.[a-z0-9_]+)*$",
        default_type="risk.technical",
        fields={
            "title": _TITLE,
            "content": _LONG,
            "impact": {"type": "string", "enum": ["low", "medium", "high", "critical"]},
            "probability": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
            "mitigation_strategy": _LONG,
            "owner": _SHORT,
        },
        defaults={"impact": "medium"},
        text=("content", "mitigation_strategy"),
        required=("title",),
    ),
    Kind(
        name="requirement",
        label="text",
        types=r"^requirement\.(functional|non_functional|constraint|assumption|dependency)(\.[a-z0-9_]+)*$",
        default_type="requirement.functional",
        fields={"text": {**_TITLE, "maxLength": _CONTENT // 3}, "priority": _PRIORITY},
        defaults={"priority": 3},
        required=("text",),
    ),
    Kind(
        name="metric",
        label="name",
        fields={
            "name": _TITLE,
            "description": _LONG,
            "unit": _SHORT,
            "points": {
                "type": "array",
                "maxItems": 1000,
                "items": {
                    "type": "object",
                    "properties": {"at": {"type": "string", "maxLength": 40}, "value": {"type": "number"}},
                    "required": ["value"],
                    "additionalProperties": False,
                },
            },
        },
        defaults={"points": ()},
        text=("description",),
        required=("name",),
    ),
    Kind(
        name="source",
        label="title",
        fields={"title": _TITLE, "description": _LONG, "url": {"type": ["string", "null"], "maxLength": 2000}},
        text=("description", "url"),
        required=("title",),
    ),
    Kind(
        name="event",
        label="title",
        states=("confirmed", "tentative", "cancelled"),
        types=r"^event\.(work|collab|marker)(\.[a-z0-9_]+)*$",
        default_type="event.work",
        fields={
            "title": _TITLE,
            "description": _LONG,
            "location": _SHORT,
            "start_at": {
                "type": "string",
                "maxLength": 40,
                "description": "ISO 8601: a time, or a day for an event of whole days",
            },
            "end_at": {
                "type": ["string", "null"],
                "maxLength": 40,
                "description": "ISO 8601; of whole days the day after the last one",
            },
            "timezone": {
                "type": ["string", "null"],
                "maxLength": 100,
                "description": "IANA name, such as Europe/Berlin",
            },
            "recurrence": {
                "type": ["string", "null"],
                "maxLength": 500,
                "description": "RRULE of RFC 5545, such as FREQ=WEEKLY;BYDAY=MO",
            },
        },
        text=("description", "location"),
        times=("start_at", "end_at"),
        props={},
        required=("title", "start_at"),
        kept=EVENT_COLUMNS,
        indexes=EVENT_INDEXES,
        shown=NOT_DELETING,
        listed_by="list_calendar_events",
    ),
)

KINDS: Final[Mapping[str, Kind]] = MappingProxyType({kind.name: kind for kind in _ALL})
KIND_OF_TABLE: Final[Mapping[str, Kind]] = MappingProxyType({kind.plural: kind for kind in _ALL})
KINDS_INSIDE: Final = [kind.name for kind in _ALL if kind.name != "project"]
"""Kinds of entities that belong to a project."""
KINDS_CREATED: Final = [name for name in KINDS_INSIDE if name != "event"]
"""Of them those that are created with a project: events are made in a calendar."""


def containment(kind: str) -> str:
    """Return the relation by which a parent contains an entity of this kind."""
    return f"has_{kind}"


_ANY: Final = tuple(KINDS)

SEMANTIC: Final[Mapping[str, tuple[Sequence[str], Sequence[str]]]] = MappingProxyType(
    {
        "supports_goal": (("task", "plan", "milestone", "goal", "document", "requirement", "metric"), ("goal",)),
        "targets_milestone": (("task", "plan"), ("milestone",)),
        "depends_on": (_WORK, _WORK),
        "requires": (_ANY, _ANY),
        "blocks": ((*_WORK, "milestone", "risk"), (*_WORK, "milestone")),
        "references": (_ANY, _ANY),
        "relates_to": (_ANY, _ANY),
        "threatens": (("risk",), ("project", "task", "plan", "goal", "milestone", "requirement")),
        "mitigates": (("task", "plan", "milestone", "document", "requirement"), ("risk",)),
        "addressed_in": (("risk", "requirement", "goal"), ("document", "task", "plan", "milestone")),
        "addresses": (("document", "task", "plan", "milestone"), ("risk", "requirement", "goal")),
        "documented_in": (_ANY, ("document",)),
        "task_has_document": (("task",), ("document",)),
    }
)
"""Relation → the kinds that it goes from, and those that it goes to."""

RELATIONS: Final[Mapping[str, tuple[Sequence[str], Sequence[str]]]] = MappingProxyType(
    {
        **{containment(kind): (parents, (kind,)) for kind, parents in PARENTS.items()},
        CONTEXT_DOCUMENT: (("project",), ("document",)),
        "contains": (("document",), ("document",)),
        **SEMANTIC,
    }
)

SCHEMA: Final = Schema(
    name="graph",
    tables=(
        *(kind.table for kind in _ALL),
        CALENDARS,
        Table(
            name="edges",
            noun="edge",
            listed_by="get_entity_relationships",
            columns={
                "src_kind": "TEXT NOT NULL",
                "src_id": "TEXT NOT NULL",
                "rel": "TEXT NOT NULL",
                "dst_kind": "TEXT NOT NULL",
                "dst_id": "TEXT NOT NULL",
                "props": "JSON NOT NULL",
            },
            indexes=(("src_id", "rel", "deleted_at", "project_id"), ("dst_id", "rel")),
            unique=(("src_id", "rel", "dst_id"),),
        ),
        Table(
            name="trees",
            noun="state of the document tree",
            columns={"version": "INTEGER NOT NULL", "structure": "JSON NOT NULL"},
            indexes=(("project_id", "version"),),
        ),
        Table(
            name="versions",
            noun="version",
            columns={
                "document_id": "TEXT NOT NULL",
                "number": "INTEGER NOT NULL",
                "title": "TEXT NOT NULL",
                "description": "TEXT",
                "content": "TEXT",
            },
            indexes=(("document_id", "number"),),
        ),
    ),
    migrations={
        2: ("DROP INDEX IF EXISTS {edges}_by_2",),  # made anew with all that the count of an entity's children reads
        # Made anew in the order of lists, and with all that a count reads; the first ones are left out.
        3: tuple(f"DROP INDEX IF EXISTS {{{kind.plural}}}_by_{number}" for kind in _ALL for number in (1, 2, 3)),
        4: (),  # the tables of the calendar are new
    },
    absorbs={"calendar": FORMER_CALENDAR},
)
