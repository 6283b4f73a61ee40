"""Seed 001: three meta-tools before all others. Help goes from groups to one op, exec runs it, batch does both.

The view is these three, and instructions with the present contents of the catalog.

`tool_exec` becomes the call of the real tool; nothing runs here:

    tool_exec {"op": "onto.task.create", "args": {…}}
      `exec_arguments.unwrap`   Unwrapped(name=op, arguments, options)    without the catalog: shapes alone
      `op_call.read`            op → tool; argument names, fallback        with the catalog, in `resolve`
      then the call is one of the real tool, and the envelope `gateway` wraps its result
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ...core.tool import Annotations
from .. import meta_tools
from ..base import Strategy, Verb, View, VisibleCatalog, object_schema
from ..ops import parts_of
from .batch import run_batch
from .exec_arguments import MAX_KEY, unwrap
from .help import run_help, sample_op
from .op_call import read
from .op_tree import Tree

MAX_OPS: Final = 50
"""Entries of one batch."""

_GROUPS_NAMED: Final = 8
_ENTITIES_NAMED: Final = 12
"""Of one group; instructions must not grow with the catalog."""

_BATCH_SECONDS: Final = 600.0
"""Each call inside has its own time; the whole has the longest that a call may take."""

_PATH: Final = {
    "type": "string",
    "default": "root",
    "description": '"root", a group, an entity or an exact op, as an earlier answer names it.',
}
_FORMAT: Final = {"type": "string", "enum": ["short", "full"], "default": "short"}
_EXAMPLES: Final = {"type": "boolean", "default": True}
_SCHEMAS: Final = {"type": "boolean", "default": False, "description": "Add the JSON schemas."}
_OP: Final = {"type": "string", "description": "Exact op, from {help}."}
_ARGS: Final = {"type": "object", "description": "The op's own arguments."}
_KEY: Final = {
    "type": "string",
    "maxLength": MAX_KEY,
    "description": "A write with the same key and arguments runs once.",
}
_DRY_RUN: Final = {"type": "boolean", "default": False, "description": "Tell what a write would do, change nothing."}

_EXEC: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"op": _OP, "args": _ARGS, "idempotency_key": _KEY, "dry_run": _DRY_RUN},
    "required": ["op", "args"],
}

_ENTRY: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "type": {"type": "string", "enum": ["help", "exec"]},
        "path": {"type": "string"},
        "format": {"type": "string", "enum": ["short", "full"]},
        "include_examples": {"type": "boolean"},
        "include_schemas": {"type": "boolean"},
        "op": {"type": "string"},
        "args": {"type": "object"},
        "idempotency_key": {"type": "string", "maxLength": MAX_KEY},
        "dry_run": {"type": "boolean"},
    },
}


def gateway(visible: VisibleCatalog) -> View:
    """Return the meta-tools, and no other tool for any catalog; `read` is an op like any other."""
    return View(tools=meta_tools.definitions(visible.profile, _VERBS), instructions=_instructions(visible))


def _instructions(visible: VisibleCatalog) -> str:
    """Return the profile's instructions, filled with an existing path and the existing groups."""
    tree = Tree.of(visible)
    if not tree.ops:
        return "There are no tools."
    op = sample_op(tree)
    words = {**visible.profile.verbs, "op": op, "entity": op.rpartition(".")[0] or op}
    text = visible.profile.instructions
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value)
    listed = "; ".join(_group(tree, group) for group in tree.groups[:_GROUPS_NAMED])
    more = len(tree.groups) - _GROUPS_NAMED
    return f"{text.strip()}\n{len(tree.ops):,} ops: {listed}{f'; {more} more groups' if more > 0 else ''}."


def _group(tree: Tree, group: str) -> str:
    below = tree.below(group)
    entities = list(dict.fromkeys(parts_of(op)[1].partition(".")[0] for op in below))
    named = [entity for entity in entities if entity][:_ENTITIES_NAMED]
    more = ", …" if len(entities) > len(named) + 1 else ""
    return f"{group} ({', '.join(named)}{more})" if named else group


_VERBS: Final[Mapping[str, Verb]] = MappingProxyType(
    {
        "help": Verb(
            description="What tools there are and how to call them: groups, entities, ops, the args of one op.",
            input_schema=object_schema(
                [], path=_PATH, format=_FORMAT, include_examples=_EXAMPLES, include_schemas=_SCHEMAS
            ),
            run=run_help,
        ),
        "exec": Verb(
            description="Run an op that {help} names. An error names the help_path that tells what was wrong.",
            input_schema=_EXEC,
            annotations=Annotations(),
            unwrap=unwrap,
        ),
        "batch": Verb(
            description="Several {help} (type help) and {exec} (type exec) calls at once; results in their order.",
            input_schema=object_schema(
                ["ops"],
                ops={"type": "array", "items": _ENTRY, "minItems": 1, "maxItems": MAX_OPS},
                mode={"type": "string", "enum": ["sequential", "parallel"], "default": "sequential"},
            ),
            example={"ops": [{"type": "help", "path": "root"}]},
            annotations=Annotations(),
            run=run_batch,
            timeout=_BATCH_SECONDS,
        ),
    }
)

STRATEGY = Strategy(
    view=gateway,
    verbs=_VERBS,
    read=read,
    options={"arguments": dict, "fallback": bool, "ops": dict},
)
