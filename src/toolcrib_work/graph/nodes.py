"""Entities of the graph: checks of what is written, rows as results, changes and deletion.

A row becomes a result in three lengths: `view` in full, `written` after a change (long texts cut, as the model has
just given them), and `brief` as a line of a list.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any, Final

from toolcrib.plugin import FieldError, Role, Row, Rows, ToolFailure, invalid_argument

from .calendar_tables import is_deleting, project_of
from .model import DONE, KINDS, VERSION_HISTORY, Kind

_SNIPPET: Final = 200
_ECHO: Final = 1000
"""Characters of a text that the result of a change repeats in full."""
_ID_BITS: Final = 60
_LETTER: Final = 0xA << _ID_BITS
_DAY: Final = len("2026-11-30")
"""Characters of a date without a time."""
_HIDDEN: Final = ("deleted_at", "revision")

_SPANS: Final[Iterable[tuple[str, str]]] = (("start_at", "due_at"), ("start_at", "end_at"))


def date_of(seconds: float) -> str:
    """Return a time of seconds since 1970 in ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_id() -> str:
    """Return the id of a new entity or edge: a letter and 60 random bits as hexadecimal digits.

    Ids are most of what a model reads of a list: this one takes 9 tokens of o200k, a UUID 23. The letter keeps a
    client from reading an id as a number. Among a million entities two are the same with a chance of 1 to 2 million;
    the store refuses the second one.
    """
    return f"{_LETTER | secrets.randbits(_ID_BITS):x}"


def node_kind(name: str, path: str) -> Kind:
    """Return a kind. Raises `ToolFailure` for an unknown name."""
    found = KINDS.get(name)
    if found is None:
        raise invalid_argument(path, f"{name!r} is not a kind of entity; kinds are {', '.join(KINDS)}", keyword="enum")
    return found


def _check_fields(kind: Kind, fields: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the fields as they are stored: dates in ISO 8601, no blanks around a title.

    Raises `ToolFailure` with every error and its path.
    """
    before = f"{path}." if path else ""
    errors = [
        FieldError(path=f"{before}{one.path}", keyword=one.keyword, message=one.message, expected=one.expected)
        for one in kind.validator.check(dict(fields))
    ]
    checked = dict(fields)
    for name in kind.times:
        if isinstance(checked.get(name), str):
            try:
                checked[name] = _iso(checked[name])
            except ValueError:
                message = f"{checked[name]!r} is not an ISO 8601 date or time (example: 2026-11-30T09:00:00Z)"
                errors.append(FieldError(path=f"{before}{name}", keyword="format", message=message))
    if errors:
        raise ToolFailure(
            "invalid_arguments",
            "; ".join(str(error) for error in errors[:10]),
            details={"field_errors": [error.to_json() for error in errors]},
        )
    if isinstance(checked.get(kind.label), str):
        checked[kind.label] = checked[kind.label].strip()
    return checked


def insert_node(
    rows: Rows, kind: Kind, project_id: str, fields: Mapping[str, Any], *, path: str = "", id: str = ""
) -> Row:
    """Add an entity with its defaults. Its edges and its place in a tree are for others to add."""
    missing = [name for name in kind.required if fields.get(name) is None]
    given = {name: value for name, value in fields.items() if name not in missing}
    checked = {**kind.defaults, **_check_fields(kind, given, path)}
    if missing:
        at = f"{path}." if path else ""
        raise invalid_argument(f"{at}{missing[0]}", f"{missing[0]} is required for a {kind.name}", keyword="required")
    values: dict[str, Any] = {
        **checked,
        "project_id": project_id,
        "props": checked.get("props") or {},
        "state_key": checked.get("state_key") or (kind.states[0] if kind.states else None),
        "type_key": checked.get("type_key") or kind.default_type or None,
    }
    if kind.name == "document":
        values["version"] = 1
    if kind.name == "project":
        values["doc_structure"] = {"version": 0, "root": []}
    _complete(kind, values, {}, rows.now)
    _check_order(values, path)
    return rows.insert(kind.plural, values, id=id or new_id())


def update_node(
    rows: Rows,
    kind: Kind,
    id: str,
    fields: Mapping[str, Any],
    *,
    strategy: str = "replace",
    revision: int | None = None,
) -> Row:
    """Change fields of an entity; `append` adds to its texts. Props join those that it has; None removes one.

    Raises `ToolFailure`: without any field, and for an entity that has another `revision` by now.
    """
    if not fields:
        names = ", ".join(kind.schema["properties"])
        raise invalid_argument(
            "", "nothing to change: give at least one field", keyword="minProperties", hint=f"fields: {names}"
        )
    before = rows.get(kind.plural, id, "editor")
    changes = dict(fields)
    if "props" in changes:
        props = {**before["props"], **changes["props"]}
        changes["props"] = {name: value for name, value in props.items() if value is not None}
    if strategy == "append":
        changes = {name: _appended(kind, name, before[name], value) for name, value in changes.items()}
    changes = _check_fields(kind, changes)
    if missing := [name for name in kind.required if name in changes and changes[name] is None]:
        raise invalid_argument(missing[0], f"a {kind.name} has a {missing[0]}: it cannot be null", keyword="type")
    after = {**before, **changes}
    _complete(kind, after, before, rows.now)
    _check_order(after, "")
    if "completed_at" in before and after["completed_at"] != before["completed_at"]:
        changes["completed_at"] = after["completed_at"]
    if kind.name == "document" and any(name in changes for name in ("title", "description", "content")):
        _keep_version(rows, before)
        changes["version"] = before["version"] + 1
    return rows.update(kind.plural, id, changes, revision=revision, before=before)


def remove_node(rows: Rows, kind: Kind, id: str) -> Row:
    """Mark an entity as deleted; its edges and its place in a tree are for others to remove."""
    return rows.delete(kind.plural, id)


def get_row(rows: Rows, kind: Kind, id: str, role: Role = "viewer") -> Row:
    """Return an entity. Raises `ToolFailure`: `not_found`, or `denied` without the role."""
    row = rows.get(kind.plural, id, role)
    if is_deleting(row):
        raise ToolFailure("not_found", f"there is no {kind.name} {id!r}", hint="it was deleted")
    return row


def get_node(rows: Rows, kind: Kind, id: str, project_id: str, path: str) -> Row:
    """Return an entity of a project. Raises `ToolFailure` for an unknown id, and for one of another project."""
    found = get_row(rows, kind, id)
    if found["project_id"] != project_id:
        raise invalid_argument(path, f"{kind.name} {id} belongs to another project")
    return found


def check_node(rows: Rows, kind: Kind, id: str, project_id: str, path: str) -> None:
    """Raise as `get_node` does. A project has its whole document tree in its row: this does not read it."""
    sql = f"SELECT id, project_id FROM {{{kind.plural}}} AS one WHERE id = ? AND {kind.shown}"
    if rows.select_values(sql, (id,)) != [(id, project_id)]:
        get_node(rows, kind, id, project_id, path)


def label_of(kind: Kind, row: Mapping[str, Any]) -> str:
    """Return the title, name or text of an entity."""
    return str(row[kind.label] or "")


def view(kind: Kind, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entity as a result, in full."""
    shown = {name: value for name, value in row.items() if name not in _HIDDEN}
    if kind.name == "project":
        shown.pop("project_id")
    if not kind.states:
        shown.pop("state_key", None)
    if not kind.types:
        shown.pop("type_key", None)
    if "is_public" in shown:
        shown["is_public"] = bool(shown["is_public"])
    for name in ("created_at", "updated_at"):
        shown[name] = date_of(shown[name])
    return shown


def written(kind: Kind, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entity as the result of a change: a model need not read again the long texts that it has just given."""
    shown = view(kind, row)
    shown.pop("doc_structure", None)
    for name in kind.text:
        text = shown[name] or ""
        if len(text) > _ECHO:
            shown[name] = f"{text[:_SNIPPET]}… [{len(text):,} characters in all]"
    return shown


def brief_columns(kind: Kind) -> list[str]:
    """Return the columns of a row that `brief` needs."""
    names = ("id", "project_id", kind.label, "state_key", "type_key", "priority", "impact", *kind.times, "description")
    known = {"id", "project_id", *kind.table.columns}
    return [name for name in names if name in known]


def brief(
    kind: Kind, row: Mapping[str, Any], project_id: str | None = None, *, snippet: int = _SNIPPET
) -> dict[str, Any]:
    """Return an entity as a line of a list: its label, keys and dates, and the beginning of its description.

    A line does not repeat the `project_id` of the call, the defaults of its kind and empty fields: lists are the
    largest results that a model reads often. `snippet` is the most that it has of the description.
    """
    left_out = {**kind.usual, "project_id": row["id"] if kind.name == "project" else project_id}
    shown = {name: row[name] for name in brief_columns(kind) if row[name] not in (None, left_out.get(name))}
    text = " ".join(str(shown.pop("description", "")).split())
    if text and snippet:
        most = min(snippet, _SNIPPET)
        shown["description"] = text if len(text) <= most else f"{text[: most - 1]}…"
    return shown


def edge_view(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an edge as a result."""
    names = ("src_kind", "src_id", "rel", "dst_kind", "dst_id", "props")
    about = {"id": row["id"], "project_id": project_of(row), **{name: row[name] for name in names}}
    return {**about, "created_at": date_of(row["created_at"])}


def publish(rows: Rows, op: str, project_id: str, kind: str, id: str, **more: Any) -> None:
    """Record the event of an operation, with its entity and action."""
    rows.publish(op, project_id, operation(op, kind=kind, id=id, **more))


def operation(op: str, **more: Any) -> dict[str, Any]:
    """Return the payload of an operation's event."""
    _, *entity, action = op.split(".")
    return {"op": op, "entity": ".".join(entity), "action": action, **more}


def _keep_version(rows: Rows, document: Row) -> None:
    """Keep the state of a document before a change, in the place of the oldest one.

    The id of the row is the version modulo their number: a ring, in which nothing has to be looked for and removed.
    """
    number = document["version"]
    id = f"{document['id']}.{number % VERSION_HISTORY}"
    values = {
        "document_id": document["id"],
        "number": number,
        **{name: document[name] for name in ("title", "description", "content")},
    }
    oldest = rows.find("versions", id)
    if oldest is None:
        rows.insert("versions", {**values, "project_id": document["project_id"]}, id=id)
    else:
        rows.update("versions", id, values, before=oldest)


def _appended(kind: Kind, name: str, old: Any, new: Any) -> Any:
    if name in kind.text and isinstance(new, str) and old:
        return f"{old.rstrip()}\n\n{new}"
    return new


def _complete(kind: Kind, after: dict[str, Any], before: Mapping[str, Any], now: float) -> None:
    """Set `completed_at` where the entity enters its state of completion, and clear it where it leaves."""
    done = DONE.get(kind.name)
    if done is None:
        return
    if after["state_key"] != done:
        after["completed_at"] = None
    elif before.get("state_key") != done or not before.get("completed_at"):
        after["completed_at"] = date_of(now)


def _check_order(row: Mapping[str, Any], path: str) -> None:
    for first, last in _SPANS:
        start, end = row.get(first), row.get(last)
        if isinstance(start, str) and isinstance(end, str) and _is_before(end, start):
            raise invalid_argument(f"{path}.{last}" if path else last, f"{last} {end} is before {first} {start}")


def _iso(text: str) -> str:
    text = text.strip()
    if len(text) == _DAY:
        return date.fromisoformat(text).isoformat()
    moment = datetime.fromisoformat(text)
    return moment.isoformat().replace("+00:00", "Z")


def _is_before(end: str, start: str) -> bool:
    """Compare dates where one of the two has no time: a day lasts to its end."""
    if _DAY in (len(end), len(start)):
        return end[:_DAY] < start[:_DAY]
    return _moment(end) < _moment(start)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
