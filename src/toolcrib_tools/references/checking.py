"""A file of references is checked; a text is turned into a vector."""

from __future__ import annotations

from typing import Annotated, Final, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, tool

from .._workspace.data import data_at
from .._workspace.decoding import decoded
from .._workspace.place import file_at, workspace_of
from .shelf import checked, references_of, sources_in

__all__ = ["Embedding", "ReferenceChecked", "compute_embedding", "validate_reference"]

_MOST_BYTES: Final = 1 << 20
_TEXT: Final = 100_000
"""Characters of a text that is embedded; a model reads its first some hundred words."""


class ReferenceChecked(TypedDict):
    """Whether a file of references can be used."""

    path: str
    valid: bool
    references: Annotated[list[str], Field(description="Ids of those that can be used.")]
    errors: list[str]
    warnings: list[str]


class Embedding(TypedDict):
    """What a text means."""

    model: Annotated[str, Field(description="Vectors of one model are comparable.")]
    dimensions: int
    embedding: Annotated[list[float], Field(description="Of length 1.")]


@tool(
    op="x.reference.validate",
    category="knowledge",
    kind="read",
    open_world=False,
    needs=["workspace"],
    tags=["reference", "check", "lint", "schema"],
    examples=[{"path": ".toolcrib/references/style.json"}],
    policy={"edge_cases": ["One that is wrong does not take the others of its file away."]},
)
async def validate_reference(path: Annotated[str, Field(min_length=1)], ctx: Context) -> ReferenceChecked:
    """Validate a file with a reference, or with several under `sources`: its keys, and that local files are there.

    Args:
        path: The file, JSON or YAML.
    """
    workspace = workspace_of(ctx)
    data = await data_at(workspace, path)
    found: list[str] = []
    errors: list[str] = []
    warnings: list[str] = []
    for where, one in sources_in(data, path):
        reference, wrong, strange = checked(one, where)
        errors += wrong
        warnings += strange
        if reference is None:
            continue
        if reference.id in found:
            errors.append(f"{where}: there is a reference {reference.id!r} already")
            continue
        found.append(reference.id)
        if reference.type == "local":
            try:
                if await workspace.stat(reference.place) is None:
                    warnings.append(f"{where}: path: there is no {reference.place!r}")
            except ToolFailure as failure:
                warnings.append(f"{where}: path: {failure.message}")
    return ReferenceChecked(path=path, valid=not errors, references=found, errors=errors, warnings=warnings)


@tool(
    op="x.reference.embed",
    category="knowledge",
    kind="read",
    open_world=False,
    tags=["embedding", "vector", "semantic", "similarity"],
    examples=[{"input": "Releases are cut on Thursdays."}, {"file": "docs/style.md"}, {"reference": "style"}],
    policy={
        "dont": ["To find something by its meaning, memory_search and knowledge_search do it at once."],
        "edge_cases": ["A model reads the first some hundred words of a text: embed long ones in parts."],
    },
)
async def compute_embedding(
    ctx: Context,
    input: Annotated[str, Field(max_length=_TEXT)] = "",
    file: str = "",
    reference: str = "",
) -> Embedding:
    """Compute the embedding of a text, a file or a reference: the vector of its meaning, to compare with others.

    Args:
        input: The text.
        file: A file of the workspace, in the place of a text.
        reference: Id of a reference, in the place of a text.
    """
    given = {"input": input.strip(), "file": file.strip(), "reference": reference.strip()}
    said = [name for name, value in given.items() if value]
    if len(said) != 1:
        found = f"{' and '.join(said)} are given" if said else "none is given"
        raise ToolFailure("invalid_arguments", f"give one of {', '.join(given)}: {found}")
    text = input if input.strip() else await _text(ctx, file.strip(), reference.strip())
    made = await ctx.lent.embed([text[:_TEXT]])
    vector = list(made.vectors[0])
    return Embedding(model=made.model, dimensions=len(vector), embedding=vector)


async def _text(ctx: Context, file: str, reference: str) -> str:
    if reference:
        references = (await references_of(ctx)).all
        if reference not in references:
            raise ToolFailure("not_found", f"there is no reference {reference!r}", hint="list_references shows them")
        one = references[reference]
        if one.type in ("url", "mcp"):
            return f"{one.name}. {one.description}"
        if one.type == "inline":
            return one.content
        file = one.place
    workspace = workspace_of(ctx)
    entry = await file_at(workspace, file)
    text = decoded(await workspace.read(entry.path, limit=_MOST_BYTES), path=entry.path).plain
    if not text.strip():
        raise ToolFailure("tool_error", f"{entry.path!r} has no text")
    return text
