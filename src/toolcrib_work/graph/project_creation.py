"""Operation that creates a project with its entities, whole or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from toolcrib.plugin import Context, Rows, invalid_argument

from .changes import new_document
from .edges import (
    End,
    attach,
    canonical,
    contained_in,
    count_edges,
    link,
)
from .model import CONTENT_ALIASES, CONTEXT_DOCUMENT, KINDS, KINDS_CREATED, Kind, containment
from .nodes import insert_node, new_id, node_kind, publish
from .operations import fields_of, operation_tool, shift, storage_of

_MOST: Final = 2000
"""Entities that one call creates."""
_SECONDS: Final = 300
"""For as many, where others write as well: a call that ends before leaves nothing."""
_REFERENCE: Final = {
    "type": "object",
    "properties": {"temp_id": {"type": "string", "maxLength": 100}, "kind": {"type": "string", "enum": KINDS_CREATED}},
    "required": ["temp_id"],
    "additionalProperties": False,
}
_ENDS: Final = {"anyOf": [_REFERENCE, {"type": "string", "maxLength": 100, "description": "A temp_id"}]}


@operation_tool(
    "onto.project.create",
    "create_onto_project",
    "write",
    {
        "project": {
            "type": "object",
            "properties": fields_of(
                KINDS["project"], "name", "type_key", "description", "state_key", "props", "start_at", "end_at"
            ),
            "required": ["name", "type_key"],
            "additionalProperties": False,
        },
        "entities": {
            "type": "array",
            "maxItems": _MOST,
            "description": f"temp_id, kind ({', '.join(KINDS_CREATED)}) and the fields of that kind",
            "items": {
                "type": "object",
                "properties": {
                    "temp_id": {"type": "string", "minLength": 1, "maxLength": 100},
                    "kind": {"type": "string", "enum": KINDS_CREATED},
                },
                "required": ["temp_id", "kind"],
            },
        },
        "relationships": {
            "type": "array",
            "maxItems": 4 * _MOST,
            "description": "Pairs of entities, or from, to and rel; a pair is containment where the kinds allow it",
            "items": {
                "anyOf": [
                    {"type": "array", "items": _ENDS, "minItems": 2, "maxItems": 2},
                    {
                        "type": "object",
                        "properties": {
                            "from": _ENDS,
                            "to": _ENDS,
                            "rel": {"type": "string", "maxLength": 50},
                            "intent": {"type": "string", "enum": ["containment", "semantic"]},
                        },
                        "required": ["from", "to"],
                        "additionalProperties": False,
                    },
                ]
            },
        },
        "context_document": {
            "type": "object",
            "properties": fields_of(KINDS["document"], "title", "content", "description", "type_key", "props"),
            "required": ["content"],
            "additionalProperties": False,
        },
        "clarifications": {
            "type": "array",
            "maxItems": 20,
            "items": {
                "type": "object",
                "properties": {
                    "key": {"type": "string", "maxLength": 100},
                    "question": {"type": "string", "maxLength": 2000},
                    "required": {"type": "boolean"},
                    "choices": {"type": "array", "items": {"type": "string", "maxLength": 500}, "maxItems": 20},
                    "help_text": {"type": "string", "maxLength": 2000},
                },
                "required": ["key", "question", "required"],
                "additionalProperties": False,
            },
        },
        "meta": {"type": "object", "description": "Kept in the project's props"},
    },
    ["project", "entities", "relationships"],
    timeout=_SECONDS,
    argument_aliases=CONTENT_ALIASES,
    examples=[
        {
            "project": {"name": "Spring launch", "type_key": "project.business.launch"},
            "entities": [
                {"temp_id": "g1", "kind": "goal", "name": "100 customers"},
                {"temp_id": "t1", "kind": "task", "title": "Write the page"},
            ],
            "relationships": [[{"temp_id": "g1", "kind": "goal"}, {"temp_id": "t1", "kind": "task"}]],
        }
    ],
    policy={
        "do": [
            "List the projects first: the same one may be there already.",
            "Infer what the user implied: goals, plans and tasks that follow from the request.",
            "Give every entity a temp_id, and relate each to its parent.",
        ],
        "dont": [
            "Do not log what was just discussed as tasks.",
            "Do not use ids of existing entities as temp_id.",
            "Do not ask by clarifications what can be inferred.",
        ],
        "edge_cases": [
            "A project alone has empty entities and relationships.",
            "A milestone needs a goal as its parent.",
            "An entity without a parent belongs to the project itself.",
        ],
    },
)
async def create_onto_project(
    ctx: Context,
    project: Mapping[str, Any],
    entities: Sequence[Mapping[str, Any]],
    relationships: Sequence[Any],
    context_document: Mapping[str, Any] | None = None,
    clarifications: Sequence[Mapping[str, Any]] = (),
    meta: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Create a project with its entities, the relationships between them and a context document.

    If one of them is not valid, nothing is created. With clarifications nothing is created either: the questions come
    back for the user. The new project becomes the current one: later calls that require a project_id and have none
    mean it.
    """
    if clarifications:
        message = "Nothing was created: ask the user, then call again without clarifications."
        return {"project_id": None, "counts": {}, "clarifications": list(clarifications), "message": message}
    given = dict(project)
    if meta:
        given["props"] = {**(given.get("props") or {}), "meta": dict(meta)}
    id = new_id()
    result = await _build(ctx, id, given, entities, relationships, context_document)
    shifted = shift(ctx, id, given["name"])
    return {**result, "context_shift": shifted, "message": f"Created project {given['name']!r}."}


async def _build(
    ctx: Context,
    project_id: str,
    project: Mapping[str, Any],
    entities: Sequence[Mapping[str, Any]],
    relationships: Sequence[Any],
    context_document: Mapping[str, Any] | None,
) -> dict[str, Any]:
    ends: dict[str, End] = {}
    for number, one in enumerate(entities):
        path = f"entities[{number}]"
        if one["temp_id"] in ends:
            raise invalid_argument(f"{path}.temp_id", f"{one['temp_id']!r} is the temp_id of another entity")
        ends[one["temp_id"]] = End(node_kind(one["kind"], f"{path}.kind").name, new_id())
    edges = [_relation(one, ends, f"relationships[{number}]") for number, one in enumerate(relationships)]
    contained = {edge[2].id for edge, _ in edges if edge[1] == containment(edge[2].kind)}

    def begin(rows: Rows) -> None:
        insert_node(rows, KINDS["project"], project_id, project, path="project", id=project_id)

    def add(rows: Rows, one: Mapping[str, Any], path: str) -> None:
        kind, id = KINDS[one["kind"]], ends[one["temp_id"]].id
        fields = _labelled(kind, {name: value for name, value in one.items() if name not in ("temp_id", "kind")})
        if kind.name == "document":
            new_document(rows, project_id, fields, path=path, id=id)
        else:
            insert_node(rows, kind, project_id, fields, path=path, id=id)

    def finish(rows: Rows) -> dict[str, Any]:
        counts: dict[str, int] = dict(Counter(KINDS[end.kind].plural for end in ends.values()))
        if context_document is not None:
            document = new_document(rows, project_id, _with_context_type(context_document), path="context_document")
            ends_of = (End("project", project_id), CONTEXT_DOCUMENT, End("document", document["id"]))
            link(rows, project_id, ends_of)
            counts["documents"] = counts.get("documents", 0) + 1
        counts["edges"] = count_edges(rows, project_id)
        publish(rows, "onto.project.create", project_id, "project", project_id, title=project["name"], counts=counts)
        return {"project_id": project_id, "counts": counts, "entities": {key: end.id for key, end in ends.items()}}

    parts: list[Callable[[Rows], object]] = [
        begin,
        *(partial(add, one=one, path=f"entities[{number}]") for number, one in enumerate(entities)),
        *(partial(link, project_id=project_id, ends=edge, paths=paths) for edge, paths in edges),
        *(
            partial(attach, project_id=project_id, child=end, parents=(), path=f"entities[{number}]")
            for number, end in enumerate(ends.values())
            if end.id not in contained and end.kind != "document"
        ),
    ]
    return await storage_of(ctx).build(project_id, parts, finish, ctx.report)


def _labelled(kind: Kind, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the name of an entity under the word of its kind: title, name or text."""
    labels = ("title", "name") if kind.name == "document" else ("title", "name", "text")  # its text is its content
    others = [name for name in labels if name in fields and name not in kind.fields]
    if kind.label in fields or len(others) != 1:
        return fields
    return {kind.label if name in others else name: value for name, value in fields.items()}


def _with_context_type(document: Mapping[str, Any]) -> dict[str, Any]:
    return {"type_key": "document.context.project", **document}


def _relation(given: Any, ends: Mapping[str, End], path: str) -> tuple[tuple[End, str, End], tuple[str, str]]:
    """Return the canonical edge of a relationship, and the paths of its two entities."""
    one = cast("Mapping[str, Any]", given if isinstance(given, Mapping) else {})
    pair = (one["from"], one["to"]) if one else cast("Sequence[Any]", given)
    paths = (f"{path}.from", f"{path}.to") if one else (f"{path}[0]", f"{path}[1]")
    src, dst = (_end(end, ends, at) for end, at in zip(pair, paths, strict=True))
    rel, intent = one.get("rel"), one.get("intent")
    if rel is None:
        is_contained = intent == "containment" or (intent is None and contained_in(src, dst))
        rel = "contains" if is_contained else "relates_to"
    return canonical(src, rel, dst, path), paths


def _end(given: Any, ends: Mapping[str, End], path: str) -> End:
    temp_id = given if isinstance(given, str) else given["temp_id"]
    found = ends.get(temp_id)
    if found is None:
        raise invalid_argument(
            path, f"no entity of this call has the temp_id {temp_id!r}", hint=f"temp_ids: {', '.join(ends)}"
        )
    kind = found.kind if isinstance(given, str) else given.get("kind", found.kind)
    if kind != found.kind:
        raise invalid_argument(f"{path}.kind", f"{temp_id!r} is a {found.kind}, not a {kind}")
    return found
