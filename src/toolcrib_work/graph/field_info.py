"""Operation that describes the fields of a kind of entity."""

from __future__ import annotations

from typing import Any, Final

from toolcrib.plugin import Context, ToolFailure

from .model import KINDS
from .operations import operation_tool

__all__ = ["get_onto_field_info"]

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
