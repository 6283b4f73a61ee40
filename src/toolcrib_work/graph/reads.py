"""Operations that read entities: a list, a search and a getter of each kind, and the search over all kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from toolcrib.plugin import Context, Row, Rows, TextHit, ToolFailure, fit_page

from .calendar_tables import project_of
from .edges import edges_of
from .links import HITS, LINKS, entities_of, links_of
from .model import KIND_OF_TABLE, KINDS, Kind
from .nodes import brief, label_of, view
from .operations import ID, MOST, OFFSET, Operation, fields_of, limit, listed, note, operation_tool, part, storage_of

_PROJECT: Final = ID("project", "; without it all projects of the user")
_SNIPPET: Final = 200
_SNIPPETS: Final = 2000
"""Characters of descriptions in one list: a long list is read for its titles."""
_SHORTEST: Final = 50
"""Characters of a description that is worth a place in a list."""


def _keys(kind: Kind, *names: str) -> dict[str, Any]:
    return {"project_id": _PROJECT, **(fields_of(kind, *names) if names else {})}


def _listing(
    rows: Rows, kind: Kind, found: Sequence[Row], total: int, project_id: str | None, offset: int = 0
) -> dict[str, Any]:
    """Return the result of a list. Tasks come with the name of their project: once where the call names one."""
    snippet = _SNIPPETS // max(1, len(found))
    lines = [brief(kind, row, project_id, snippet=snippet if snippet >= _SHORTEST else 0) for row in found]
    about: dict[str, Any] = {}
    if kind.name == "task":
        ids = sorted({row["project_id"] for row in found})
        marks = ", ".join("?" * len(ids)) or "''"
        sql = f"SELECT id, name FROM {{projects}} AS p WHERE id IN ({marks})"
        names = {row["id"]: row["name"] for row in rows.select(sql, ids)}
        if project_id is None:
            lines = [{**line, "project_name": names[row["project_id"]]} for line, row in zip(lines, found, strict=True)]
        elif names:
            about["project_name"] = names[project_id]
    message = part(len(found), offset, total, kind.name if total == 1 else kind.plural)
    return {kind.plural: lines, "total": total, **about, "message": message}


def _lister(name: str, default: int, *filters: str) -> Operation:
    kind = KINDS[name]
    op = f"onto.{name}.list"
    properties = {**_keys(kind, *filters), "limit": limit(default), "offset": OFFSET}
    if name == "project":
        del properties["project_id"]

    @operation_tool(
        op,
        f"list_onto_{kind.plural}",
        "read",
        properties,
        examples=[{}],
        description=f"List {kind.plural}, newest change first, with their total.",
    )
    async def run(ctx: Context, limit: int, offset: int, **wanted: Any) -> dict[str, Any]:
        def work(rows: Rows) -> dict[str, Any]:
            found, total = listed(rows, kind, wanted, min(limit, MOST), offset=offset)
            if wanted.get("project_id") and not found:  # visible rows prove the membership: one statement less
                rows.require(wanted["project_id"], "viewer")
            return _listing(rows, kind, found, total, wanted.get("project_id"), offset)

        result = await storage_of(ctx).read(work)
        note(ctx, op, wanted.get("project_id") or "", total=result["total"])
        return result

    return run


def _searcher(name: str, default: int, *filters: str) -> Operation:
    kind = KINDS[name]
    op = f"onto.{name}.search"
    words = {"type": "string", "minLength": 1, "maxLength": 1000, "description": "Words to look for"}
    properties = {"search": words, **_keys(kind, *filters), "limit": limit(default), "offset": OFFSET}
    if name == "project":
        del properties["project_id"]

    @operation_tool(
        op,
        f"search_onto_{kind.plural}",
        "read",
        properties,
        ["search"],
        examples=[{"search": "launch"}],
        description=f"Find {kind.plural} by words in their {kind.label}, description and other texts, best first.",
    )
    async def run(ctx: Context, search: str, limit: int, offset: int, **wanted: Any) -> dict[str, Any]:
        project = wanted.get("project_id") or ""
        storage = storage_of(ctx)
        if project:
            await storage.read(lambda rows: rows.require(project, "viewer"))
        hits = await storage.search(search, project_id=project, tables=[kind.plural], limit=HITS)

        def work(rows: Rows) -> dict[str, Any]:
            matching, total = listed(rows, kind, wanted, HITS, ids=[hit.id for hit in hits])
            by_id = {row["id"]: row for row in matching}
            found = [by_id[hit.id] for hit in hits if hit.id in by_id][offset : offset + min(limit, MOST)]
            return _listing(rows, kind, found, total, wanted.get("project_id"), offset)

        result = await storage.read(work)
        note(ctx, op, project, total=result["total"])
        return result

    return run


def _getter(name: str) -> Operation:
    kind = KINDS[name]
    op = f"onto.{name}.get"

    @operation_tool(
        op,
        f"get_onto_{name}_details",
        "read",
        {f"{name}_id": ID(name)},
        [f"{name}_id"],
        examples=[{f"{name}_id": f"<{name}_id>"}],
        description=f"Get one {name} with all its fields and its links to other entities.",
    )
    async def run(ctx: Context, **given: str) -> dict[str, Any]:
        id = given[f"{name}_id"]

        def work(rows: Rows) -> dict[str, Any]:
            row = rows.get(kind.plural, id)
            edges = edges_of(rows, id)
            message = f"{name} {label_of(kind, row)!r}."
            if len(edges) > LINKS:
                message += f" The first {LINKS} of {len(edges)} links; get_linked_entities pages through all."
            return {name: view(kind, row), "links": links_of(rows, id, edges[:LINKS]), "message": message}

        result = await storage_of(ctx).read(work)
        note(ctx, op, result[name]["project_id"], kind=name, id=id)
        return result

    return run


list_onto_tasks = _lister("task", 20, "state_key")
list_onto_goals = _lister("goal", 10)
list_onto_plans = _lister("plan", 10)
list_onto_documents = _lister("document", 20, "type_key", "state_key")
list_onto_milestones = _lister("milestone", 20, "state_key")
list_onto_risks = _lister("risk", 20, "state_key", "impact")
list_onto_requirements = _lister("requirement", 20, "type_key")
list_onto_projects = _lister("project", 10, "state_key", "type_key")
search_onto_tasks = _searcher("task", 20, "state_key")
search_onto_projects = _searcher("project", 10, "state_key", "type_key")
search_onto_documents = _searcher("document", 20, "type_key", "state_key")
get_onto_task_details = _getter("task")
get_onto_goal_details = _getter("goal")
get_onto_plan_details = _getter("plan")
get_onto_document_details = _getter("document")
get_onto_milestone_details = _getter("milestone")
get_onto_risk_details = _getter("risk")
get_onto_requirement_details = _getter("requirement")


@operation_tool(
    "onto.search",
    "search_ontology",
    "read",
    {
        "query": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "Words to look for"},
        "project_id": _PROJECT,
        "types": {"type": "array", "items": {"type": "string", "enum": list(KINDS)}, "maxItems": len(KINDS)},
        "limit": limit(20),
        "offset": OFFSET,
    },
    ["query"],
    examples=[{"query": "launch date", "types": ["task", "document"]}],
)
async def search_ontology(
    ctx: Context, query: str, limit: int, offset: int, project_id: str | None = None, types: Sequence[str] | None = None
) -> dict[str, Any]:
    """Find entities of any kind by words and meaning, best first.

    Returns results with type, id, project_id, title, snippet and score; total counts up to 100 from the offset on.
    """
    project = project_id or ""
    storage = storage_of(ctx)
    if project:
        await storage.read(lambda rows: rows.require(project, "viewer"))
    tables = [KINDS[name].plural for name in types or ()]
    most = offset + 2 * MOST
    # The candidates of one page are those of the next: else the ranks by meaning change in between.
    hits = (await storage.search(query, project_id=project, tables=tables, limit=max(HITS, most)))[:most]
    page = hits[offset : offset + min(limit, MOST)]
    results = await storage.read(lambda rows: fit_page(_results(rows, page, query)))
    note(ctx, "onto.search", project, total=len(hits))
    message = part(len(results), offset, len(hits), "entity" if len(hits) == 1 else "entities")
    return {"results": results, "total": len(hits), "message": message}


def _results(rows: Rows, hits: Sequence[TextHit], query: str) -> Iterator[dict[str, Any]]:
    known = [hit for hit in hits if hit.table in KIND_OF_TABLE]
    found = entities_of(rows, [(KIND_OF_TABLE[hit.table].name, hit.id) for hit in known])
    for hit in known:
        if hit.id not in found:
            continue
        kind, row = KIND_OF_TABLE[hit.table], found[hit.id]
        yield {
            "type": kind.name,
            "id": hit.id,
            "project_id": project_of(row),
            "title": label_of(kind, row),
            "snippet": _snippet(kind, row, query, max(_SHORTEST, _SNIPPETS // len(known))),
            "score": round(hit.score, 3),
        }


def _snippet(kind: Kind, row: Row, query: str, most: int) -> str:
    """Return the text around the first word of a query that occurs in it: `most` characters, or the usual length."""
    most = min(most, _SNIPPET)
    text = " ".join(" ".join(str(row[name]).split()) for name in kind.text if row[name])
    folded = text.casefold()
    places = [folded.find(word) for word in query.casefold().split()]
    start = max(0, min((place for place in places if place >= 0), default=0) - most // 4)
    shown = text[start : start + most]
    return f"{'…' if start else ''}{shown}{'…' if start + most < len(text) else ''}"


_PREFIX: Final = "ontology_"


@operation_tool(
    "util.schema.field_info",
    "get_onto_field_info",
    "read",
    {
        "entity_type": {
            "type": "string",
            "minLength": 1,
            "maxLength": 100,
            "description": "Such as ontology_task",
        },
        "field_name": {"type": "string", "maxLength": 100, "description": "One field; else all"},
    },
    ["entity_type"],
    examples=[{"entity_type": "ontology_task", "field_name": "state_key"}],
)
async def get_onto_field_info(ctx: Context, entity_type: str, field_name: str = "") -> dict[str, Any]:
    """Describe the fields of a kind of entity (ontology_task, ontology_project …): type, values, default, required."""
    kind = KINDS.get(entity_type.removeprefix(_PREFIX)) if entity_type.startswith(_PREFIX) else None
    if kind is None:
        return _fields_of_tools(ctx, entity_type, field_name)
    properties = kind.schema["properties"]
    if field_name and field_name not in properties:
        raise ToolFailure(
            "not_found", f"a {kind.name} has no field {field_name!r}", hint=f"fields: {', '.join(properties)}"
        )
    defaults = {**kind.defaults, "state_key": kind.states[:1] and kind.states[0], "type_key": kind.default_type}
    fields = {
        name: {
            **schema,
            "required": name in kind.required,
            **({"default": defaults[name]} if defaults.get(name) else {}),
        }
        for name, schema in properties.items()
        if field_name in ("", name)
    }
    return {"entity_type": entity_type, "fields": fields, "message": f"Fields of the kind {kind.name}."}


def _fields_of_tools(ctx: Context, entity_type: str, field_name: str) -> dict[str, Any]:
    """Return the arguments of the session's tools that work on another kind of entity."""
    fields = ctx.lent.insight(ctx.principal, ctx.session_key).fields(entity_type)
    shown = {name: field for name, field in fields.items() if field_name in ("", name)}
    if not shown:
        known = ", ".join(f"{_PREFIX}{name}" for name in KINDS)
        named = f"field {field_name!r} of {entity_type!r}" if fields else f"entity type {entity_type!r}"
        raise ToolFailure("not_found", f"there is no {named}", hint=f"types: {known}; {', '.join(fields)}".rstrip("; "))
    return {"entity_type": entity_type, "fields": shown, "message": f"{len(shown)} fields."}
