"""Operations that create, change and delete single entities.

`_creator`, `_updater` and `_deleter` make one operation each for a kind. What they return is bound to a name of this
module by hand, so that type checkers and readers find `create_onto_task`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from toolcrib.plugin import Context, Row, Rows, ToolFailure, invalid_argument

from .edges import End, attach, connection_edge, detach_all, link
from .model import CONTENT_ALIASES, KINDS, PARENTS, Kind
from .nodes import edge_view, get_node, insert_node, label_of, publish, remove_node, update_node, written
from .operations import ID, Operation, changes_of, counted, fields_of, operation_tool, storage_of
from .tree import add_to_tree, move_in_tree, part_of_tree, remove_from_tree, rename_in_tree

_HEADING: Final = re.compile(r"^\s{0,3}#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)
_MERGED_TOKENS: Final = 8000
_HOW: Final = "Keep what both say; the new one is right where they differ."
_CONNECTIONS: Final = {
    "type": "array",
    "maxItems": 50,
    "items": {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": list(KINDS)},
            "id": ID("other entity"),
            "intent": {"type": "string", "enum": ["containment", "semantic"]},
            "rel": {"type": "string", "maxLength": 50, "description": "Such as depends_on or supports_goal"},
        },
        "required": ["kind", "id"],
        "additionalProperties": False,
    },
}
_ADDED: Final[Mapping[str, Any]] = {"group": "x", "category": "work"}
"""Of operations that the first users of the graph did not have."""
_POSITION: Final = {"type": "integer", "minimum": 0, "maximum": 10_000, "description": "Place among its siblings"}

_STRATEGY: Final = {
    "update_strategy": {
        "type": "string",
        "enum": ["replace", "append", "merge_llm"],
        "default": "replace",
        "description": "For texts: replace, append at the end, or have the client's model merge both",
    },
    "merge_instructions": {"type": "string", "maxLength": 5000, "description": "For merge_llm: how to merge"},
}


def _parents(kind: str) -> dict[str, Any]:
    """Return the schemas of the arguments that name parents of a new entity."""
    parent = {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": list(PARENTS[kind])},
            "id": ID("parent"),
            "is_primary": {"type": "boolean", "description": "Marks its edge: the one of several that counts most"},
        },
        "required": ["kind", "id"],
        "additionalProperties": False,
    }
    return {"parent": parent, "parents": {"type": "array", "items": parent, "maxItems": 20}}


def _named_parents(given: Mapping[str, Any], kind: Kind) -> list[tuple[End, str]]:
    """Return the parents among the arguments of a create, each with its path."""
    parents: list[tuple[End, str]] = []
    for name in ("plan_id", "milestone_id", "goal_id"):
        parent = name.removesuffix("_id")
        if given.get(name) and parent in PARENTS[kind.name] and not (name == "goal_id" and parents):
            parents.append((End(parent, given[name]), name))
    if one := given.get("parent"):
        parents.append((End(one["kind"], one["id"]), "parent.id"))
    for number, one in enumerate(given.get("parents") or ()):
        parents.append((End(one["kind"], one["id"]), f"parents[{number}].id"))
    return parents


def _primary(given: Mapping[str, Any]) -> str:
    """Return the id of the parent that is named as the primary one; empty for none."""
    named = [one["id"] for one in (given.get("parent"), *(given.get("parents") or ())) if one and one.get("is_primary")]
    if len(set(named)) > 1:
        raise invalid_argument("parents", "one parent is the primary one")
    return named[0] if named else ""


def _created(rows: Rows, kind: Kind, given: Mapping[str, Any], op: str) -> dict[str, Any]:
    """Create an entity with its parents and connections."""
    project_id = given["project_id"]
    rows.require(project_id)
    fields = {name: value for name, value in given.items() if name in kind.schema["properties"]}
    row = insert_node(rows, kind, project_id, fields)
    entity = End(kind.name, row["id"])
    parents = _named_parents(given, kind)
    others: list[tuple[tuple[End, str, End], str]] = []
    for number, one in enumerate(given.get("connections") or ()):
        path = f"connections[{number}]"
        edge = connection_edge(entity, one, path)
        if edge[2] == entity and edge[0].kind in PARENTS[kind.name] and edge[1] == f"has_{kind.name}":
            parents.append((edge[0], f"{path}.id"))
        else:
            others.append((edge, path))
    attach(rows, project_id, entity, parents, primary=_primary(given))
    if given.get("goal_id") and all(end.id != given["goal_id"] for end, _ in parents):
        _support(rows, project_id, entity, "supports_goal", End("goal", given["goal_id"]), "goal_id")
    if given.get("supporting_milestone_id"):
        milestone = End("milestone", given["supporting_milestone_id"])
        _support(rows, project_id, entity, "targets_milestone", milestone, "supporting_milestone_id")
    for edge, path in others:
        link(rows, project_id, edge, path=path, paths=("id", "id"))
    publish(rows, op, project_id, kind.name, row["id"], title=label_of(kind, row))
    return row


def _support(rows: Rows, project_id: str, entity: End, rel: str, other: End, path: str) -> None:
    link(rows, project_id, (entity, rel, other), {"auto": True}, paths=(path, path))


def _creator(
    name: str,
    fields: Sequence[str],
    links: Mapping[str, Any],
    required: Sequence[str],
    about: str = "",
    *,
    group: str = "onto",
    **options: Any,
) -> Operation:
    kind = KINDS[name]
    op = f"{group}.{name}.create"
    defaults = {
        "type_key": kind.default_type,
        "state_key": kind.states[0] if kind.states else "",
        **{field: value for field, value in kind.defaults.items() if field in fields},
    }
    properties = fields_of(kind, *fields)
    shown = {
        field: {**schema, "default": defaults[field]} if field in defaults else schema
        for field, schema in properties.items()
    }

    @operation_tool(
        op,
        f"create_onto_{name}",
        "write",
        {"project_id": ID("project"), **shown, **links},
        ["project_id", *required],
        **options,
        description=f"Create a {name} in a project. {about}".strip(),
    )
    async def run(ctx: Context, **given: Any) -> dict[str, Any]:
        row = await storage_of(ctx).write(lambda rows: _created(rows, kind, given, op))
        return {name: written(kind, row), "message": f"Created {name} {label_of(kind, row)!r}."}

    return run


create_onto_task = _creator(
    "task",
    ("title", "description", "type_key", "state_key", "priority", "start_at", "due_at", "props"),
    {
        "plan_id": ID("plan", " that contains it"),
        "goal_id": ID("goal", " that it belongs to, or supports if a nearer parent is given"),
        "supporting_milestone_id": ID("milestone", " that it targets"),
        **_parents("task"),
        "connections": _CONNECTIONS,
    },
    ["title"],
    "For future work of the user that should be tracked. Without a parent it belongs to the project itself.",
    examples=[{"project_id": "<project_id>", "title": "Call the printer", "due_at": "2026-12-01", "priority": 2}],
    policy={
        "do": [
            "Create a task for future work of the user that should be tracked.",
            "Search the project's tasks first: the same work may be there already.",
            "Write a title that makes sense in a list, without its project.",
        ],
        "dont": [
            "Do not log what was just discussed or is done already.",
            "Do not create a task for what you do yourself in this conversation.",
            "Do not put several pieces of work into one task.",
        ],
        "edge_cases": [
            "A due date before the start date is refused; leave both out if the user gave none.",
            "A plan, goal or milestone of another project is refused.",
        ],
    },
)
create_onto_goal = _creator(
    "goal",
    ("name", "description", "type_key", "props"),
    {},
    ["name"],
    examples=[{"project_id": "<project_id>", "name": "100 paying customers"}],
)
create_onto_plan = _creator(
    "plan",
    ("name", "description", "type_key", "state_key", "props"),
    {
        "goal_id": ID("goal", " that contains it"),
        "milestone_id": ID("milestone", " that contains it"),
        **_parents("plan"),
    },
    ["name"],
    examples=[{"project_id": "<project_id>", "name": "Launch week"}],
)
create_onto_milestone = _creator(
    "milestone",
    ("title", "description", "due_at", "state_key", "props"),
    {"goal_id": ID("goal", " that contains it")},
    ["title", "goal_id"],
    examples=[{"project_id": "<project_id>", "title": "Permit granted", "goal_id": "<goal_id>"}],
    **_ADDED,
)
create_onto_risk = _creator(
    "risk",
    ("title", "content", "impact", "probability", "mitigation_strategy", "owner", "type_key", "state_key", "props"),
    {**_parents("risk"), "connections": _CONNECTIONS},
    ["title"],
    "Without a parent it belongs to the project itself.",
    examples=[{"project_id": "<project_id>", "title": "The printer is late", "impact": "high"}],
    **_ADDED,
)
create_onto_requirement = _creator(
    "requirement",
    ("text", "priority", "type_key", "props"),
    _parents("requirement"),
    ["text"],
    "Without a parent it belongs to the project itself.",
    examples=[{"project_id": "<project_id>", "text": "Every page loads in a second"}],
    **_ADDED,
)


def heading_of(content: str) -> str:
    """Return the first heading of a Markdown text; empty without one."""
    found = _HEADING.search(content)
    return found[1] if found else ""


def new_document(
    rows: Rows,
    project_id: str,
    given: Mapping[str, Any],
    *,
    parent_id: str | None = None,
    position: int | None = None,
    path: str = "",
    id: str = "",
) -> Row:
    """Create a document in the project and its tree; a title that is missing is the first heading of the content."""
    kind = KINDS["document"]
    fields = dict(given)
    for name in CONTENT_ALIASES:  # of an entity of a new project: its schema declares no fields that could be renamed
        if name in fields and "content" not in fields:
            fields["content"] = fields.pop(name)
    if not str(fields.get("title") or "").strip():
        fields["title"] = heading_of(str(fields.get("content") or "")) or None
    row = insert_node(rows, kind, project_id, fields, path=path, id=id)
    attach(rows, project_id, End("document", row["id"]), ())
    project = rows.get("projects", project_id)
    add_to_tree(rows, project, row, parent_id, position)
    return row


@operation_tool(
    "onto.document.create",
    "create_onto_document",
    "write",
    {
        "project_id": ID("project"),
        "title": {**KINDS["document"].fields["title"], "description": "Else the first heading of the content"},
        "description": {**KINDS["document"].fields["description"], "type": "string", "default": ""},
        "content": {**KINDS["document"].fields["content"], "type": "string"},
        **fields_of(KINDS["document"], "type_key", "props"),
        "state_key": {**KINDS["document"].schema["properties"]["state_key"], "default": "draft"},
        "parent_id": {"type": ["string", "null"], "maxLength": 100, "description": "Document above; null is the root"},
        "position": _POSITION,
    },
    ["project_id", "content"],
    examples=[
        {"project_id": "<project_id>", "title": "Brief", "description": "What we launch", "content": "# Brief\n…"},
    ],
    argument_aliases=CONTENT_ALIASES,
)
async def create_onto_document(
    ctx: Context, project_id: str, parent_id: str | None = None, position: int | None = None, **fields: Any
) -> dict[str, Any]:
    """Create a document in a project, at a place in its tree.

    Without a title, the first heading of the content is the title.
    """

    def work(rows: Rows) -> Row:
        rows.require(project_id)
        if parent_id is not None:
            rows.get("documents", parent_id)
        row = new_document(rows, project_id, fields, parent_id=parent_id, position=position)
        publish(rows, "onto.document.create", row["project_id"], "document", row["id"], title=row["title"])
        return row

    row = await storage_of(ctx).write(work)
    return {"document": written(KINDS["document"], row), "message": f"Created document {row['title']!r}."}


@operation_tool(
    "onto.task.docs.create_or_attach",
    "create_task_document",
    "write",
    {
        "task_id": ID("task"),
        "document_id": ID("document", " to attach; without it one is created"),
        **fields_of(KINDS["document"], "title", "description", "type_key", "state_key", "content", "props"),
        "role": {"type": "string", "maxLength": 100, "description": "Such as deliverable or scratch_pad"},
    },
    ["task_id"],
    examples=[{"task_id": "<task_id>", "title": "Call notes", "content": "…", "role": "scratch_pad"}],
    argument_aliases=CONTENT_ALIASES,
)
async def create_task_document(
    ctx: Context, task_id: str, document_id: str | None = None, role: str = "", **fields: Any
) -> dict[str, Any]:
    """Attach a document to a task: the one with document_id, or a new one."""
    kind = KINDS["document"]
    if document_id is not None and fields:
        name = next(iter(fields))
        hint = "leave document_id out to create a document; update_onto_document changes one"
        raise invalid_argument(name, f"{name} is for a new document, not for one that is attached", hint=hint)

    def work(rows: Rows) -> dict[str, Any]:
        task = rows.get("tasks", task_id, "editor")
        project_id = task["project_id"]
        if document_id is not None:
            document = get_node(rows, kind, document_id, project_id, "document_id")
        else:
            document = new_document(rows, project_id, fields)
        ends = (End("task", task_id), "task_has_document", End("document", document["id"]))
        props = {"role": role} if role else {}
        linked = link(rows, project_id, ends, props, paths=("task_id", "document_id"))
        edge = linked.edge
        if not linked.is_new and role and edge["props"].get("role") != role:
            edge = rows.update("edges", edge["id"], {"props": {**edge["props"], **props}})
        publish(rows, "onto.task.docs.create_or_attach", project_id, "document", document["id"], task_id=task_id)
        verb = "Attached" if document_id is not None else "Created"
        message = f"{verb} document {document['title']!r} of task {task['title']!r}."
        return {"document": written(kind, document), "edge": edge_view(edge), "message": message}

    return await storage_of(ctx).write(work)


def _updater(name: str, *fields: str) -> Operation:
    kind = KINDS[name]
    op, key = f"onto.{name}.update", f"{name}_id"
    strategy = {} if fields else _STRATEGY

    @operation_tool(
        op,
        f"update_onto_{name}",
        "write",
        {key: ID(name), **fields_of(kind, *fields), **strategy},
        [key],
        idempotent=False,
        argument_aliases=CONTENT_ALIASES if name == "document" else {},
        examples=[{key: f"<{key}>", kind.label: f"<{kind.label}>"}],
        description=f"Change fields of a {name}, at least one. null clears a field that may be null. Props that are not"
        " given stay, and null removes one.",
    )
    async def run(ctx: Context, **given: Any) -> dict[str, Any]:
        id, how = given[key], given.get("update_strategy", "replace")
        changes = changes_of(given, key, *_STRATEGY)
        revision = None
        if how == "merge_llm":
            changes, revision = await _merged(ctx, kind, id, changes, given.get("merge_instructions", ""))

        def work(rows: Rows) -> Row:
            row = update_node(rows, kind, id, changes, strategy=how, revision=revision)
            if name == "document" and "title" in changes:
                rename_in_tree(rows, rows.get("projects", row["project_id"]), id, row["title"])
            publish(rows, op, row["project_id"], name, id, fields=sorted(changes))
            return row

        row = await storage_of(ctx).write(work)
        return {name: written(kind, row), "message": f"Updated {', '.join(changes)} of {name} {label_of(kind, row)!r}."}

    return run


async def _merged(
    ctx: Context, kind: Kind, id: str, changes: Mapping[str, Any], instructions: str
) -> tuple[dict[str, Any], int]:
    """Return the changes with texts that the client's model has merged with the present ones, and their revision.

    No transaction is open while the model works; the update is refused if the entity has another revision by then.
    """
    if ctx.peer is None or "sampling" not in ctx.peer.capabilities:
        raise invalid_argument(
            "update_strategy",
            "merge_llm needs a model: this client does not support sampling",
            hint="use replace with the merged text, or append",
        )
    before = await storage_of(ctx).read(lambda rows: rows.get(kind.plural, id, "editor"))
    merged = dict(changes)
    for name, new in changes.items():
        if name in kind.text and isinstance(new, str) and before[name]:
            merged[name] = await _merge(ctx, before[name], new, instructions)
    return merged, before["revision"]


async def _merge(ctx: Context, old: str, new: str, instructions: str) -> str:
    asked = (
        f"Merge two versions of a text into one. {instructions or _HOW}"
        f"\nAnswer with the merged text alone.\n\n<present>\n{old}\n</present>\n\n<new>\n{new}\n</new>"
    )
    assert ctx.peer is not None, "the caller has checked it"
    message = {"role": "user", "content": {"type": "text", "text": asked}}
    answer = await ctx.peer.request("sampling/createMessage", {"messages": [message], "maxTokens": _MERGED_TOKENS})
    content = answer.get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else [content]
    texts = [cast("Mapping[str, Any]", block).get("text", "") for block in blocks if isinstance(block, Mapping)]
    text = "".join(map(str, texts)).strip()
    if not text:
        raise ToolFailure("unavailable", "the client's model returned no text: nothing was changed")
    return text


update_onto_task = _updater("task")
update_onto_project = _updater("project")
update_onto_goal = _updater("goal")
update_onto_plan = _updater("plan")
update_onto_document = _updater("document")
update_onto_milestone = _updater("milestone", "title", "due_at", "state_key", "description", "props")
update_onto_risk = _updater(
    "risk", "title", "impact", "probability", "state_key", "content", "mitigation_strategy", "owner", "props"
)
update_onto_requirement = _updater("requirement", "text", "priority", "type_key", "props")


def _deleter(name: str, *, group: str = "onto", **options: Any) -> Operation:
    kind = KINDS[name]
    op, key = f"{group}.{name}.delete", f"{name}_id"
    after = " Documents below it are unlinked." if name == "document" else " What it contained stays in the project."
    after += " A milestone has no parent then, until it is given another goal." if name == "goal" else ""

    @operation_tool(
        op,
        f"delete_onto_{name}",
        "destructive",
        {key: ID(name)},
        [key],
        examples=[{key: f"<{key}>"}],
        description=f"Delete a {name} and its edges.{after}",
        **options,
    )
    async def run(ctx: Context, **given: str) -> dict[str, Any]:
        id = given[key]

        def work(rows: Rows) -> str:
            row = remove_node(rows, kind, id)
            edges = detach_all(rows, End(name, id), row["project_id"])
            message = f"Deleted {name} {label_of(kind, row)!r} and {counted(edges, 'edge')}."
            if name == "document":
                below = remove_from_tree(rows, rows.get("projects", row["project_id"]), id)
                message += f" Unlinked {counted(below, 'document')} below it." if below else ""
            publish(rows, op, row["project_id"], name, id, title=label_of(kind, row))
            return message

        return {"deleted": id, "message": await storage_of(ctx).write(work)}

    return run


delete_onto_task = _deleter("task")
delete_onto_goal = _deleter("goal")
delete_onto_plan = _deleter("plan")
delete_onto_document = _deleter("document")
delete_onto_milestone = _deleter("milestone", **_ADDED)
delete_onto_risk = _deleter("risk", **_ADDED)
delete_onto_requirement = _deleter("requirement", **_ADDED)


@operation_tool(
    "onto.document.tree.move",
    "move_document_in_tree",
    "write",
    {
        "project_id": ID("project"),
        "document_id": ID("document"),
        "new_parent_id": {"type": ["string", "null"], "maxLength": 100, "description": "null is the root"},
        "new_position": {**_POSITION, "default": 0},
    },
    ["project_id", "document_id"],
    idempotent=True,
    examples=[{"project_id": "<project_id>", "document_id": "<document_id>", "new_parent_id": None, "new_position": 0}],
)
async def move_document_in_tree(
    ctx: Context, project_id: str, document_id: str, new_position: int, new_parent_id: str | None = None
) -> dict[str, Any]:
    """Move a document, with all below it, to another place in the tree of its project."""

    def work(rows: Rows) -> dict[str, Any]:
        rows.require(project_id)
        document = get_node(rows, KINDS["document"], document_id, project_id, "document_id")
        if new_parent_id is not None:
            get_node(rows, KINDS["document"], new_parent_id, project_id, "new_parent_id")
        structure = move_in_tree(rows, rows.get("projects", project_id), document, new_parent_id, new_position)
        publish(rows, "onto.document.tree.move", project_id, "document", document_id, parent_id=new_parent_id)
        shown, rest = part_of_tree(structure, document_id)
        return {"structure": shown, "message": f"Moved document {document['title']!r}.{rest}"}

    return await storage_of(ctx).write(work)
