"""Tools that create, reset, list and inspect the notebooks of a session, and list their backends."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, cast

import anyio
from pydantic import Field

from toolcrib.plugin import Command, Context, Finished, ToolFailure, as_list, as_mapping

from .._python_program import Interpreter
from .._workspace.place import workspace_of, workspace_tool
from ..shell.processes import OutputBuffer, follow, reached_by, sandbox_of, status_of
from .cells import Cell
from .kernels import NEEDED, Notebook, command_of, interpreter_of, lacks_kernels, notebooks_of

_TAGS: Final = ["python", "jupyter", "ipython", "kernel"]
_LOOK: Final = 20.0
"""Seconds to look at the variables."""
_PROBE: Final = 60.0
"""Seconds for a program that says what there is."""
_MOST: Final = 64 * 1024
_FIELD: Final = 200
_LAST_CHARACTERS: Final = 2_000
_notebook_tool = partial(
    workspace_tool, category="notebook", needs=["shell", "sockets", "workspace"], lacks=lacks_kernels
)
_GPUS: Final = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")


class Variable(TypedDict):
    """One variable of a notebook."""

    name: str
    type: str
    value: str
    size: NotRequired[int | str]


class Variables(TypedDict):
    """The variables of a notebook."""

    notebook: str
    variables: list[Variable]
    more: int
    """Number of older ones that are left out."""


class NotebookInfo(TypedDict):
    """One notebook of the session."""

    notebook: str
    current: bool
    backend: str
    language: str
    gpu: bool
    state: str
    cells: int
    seconds: int


class Backends(TypedDict):
    """Backends of notebooks."""

    kernels: list[dict[str, str]]
    python: str
    sandbox: str
    network: bool | list[str]
    gpus: list[str]
    gpu: str


@_notebook_tool(
    op="x.notebook.create",
    kind="write",
    idempotent=False,
    approval="never",
    tags=_TAGS,
    examples=[{"name": "sales"}, {"name": "training", "gpu": True}],
    policy={"edge_cases": ["It ends with the conversation; at most 4 kernels run at a time."]},
)
async def notebook_create(
    ctx: Context,
    name: Annotated[str, Field(pattern=r"^\w[\w .-]{0,63}$")],
    gpu: bool = False,
    backend: Annotated[str, Field(pattern=r"^\w[\w.-]{0,63}$")] = "python3",
) -> str:
    """Make a notebook with a kernel and variables of its own, and make it the current one.

    Args:
        name: What to call it.
        gpu: It needs a graphics card. Refused if there is none; without it none is shown to the code.
        backend: The kernel, one that notebook_backends names: another language than Python, if it is installed.
    """
    if gpu and not (found := await _gpus(ctx))[0]:
        raise ToolFailure("unavailable", f"gpu: {found[1]}", hint="make it without gpu")
    kernel = await notebooks_of(ctx).create(ctx, Notebook(name=name, backend=backend, gpu=gpu))
    return (
        f"{name} is ready and the current notebook: {kernel.language} {kernel.version}{', with a GPU' if gpu else ''}"
    )


@_notebook_tool(
    op="x.notebook.variables",
    kind="read",
    idempotent=False,
    tags=_TAGS,
    examples=[{}, {"notebook": "sales"}],
    policy={"edge_cases": ["Values are shortened, and those of your own classes are given by their class only."]},
)
async def notebook_variables(ctx: Context, notebook: str = "") -> Variables:
    """List the variables of a notebook: name, type, short value, length or shape.

    Args:
        notebook: Which notebook; the current one when not given.
    """
    kept = notebooks_of(ctx).find(notebook)
    kernel = kept.kernel
    if kernel is None or kernel.is_over:
        return {"notebook": kept.name, "variables": [], "more": 0}
    if kernel.language != "python":
        raise ToolFailure("unavailable", f"variables are known of Python only, and {kept.name} is {kernel.language}")
    async with kept.turn:
        looked = await Cell(kernel=kernel, seconds=min(_LOOK, ctx.remaining)).run(ctx, {"do": "look"})
    data: Any = looked.inspected
    if not isinstance(data, dict):
        raise ToolFailure("tool_error", "the kernel did not tell its variables", hint="notebook_reset begins anew")
    seen = cast("Mapping[str, Any]", data)
    more = seen.get("more")
    return {
        "notebook": kept.name,
        "variables": list(_rows(seen.get("variables"))),
        "more": more if isinstance(more, int) else 0,
    }


@_notebook_tool(
    op="x.notebook.reset",
    kind="write",
    idempotent=True,
    approval="never",
    tags=[*_TAGS, "restart", "clear"],
    examples=[{}, {"notebook": "sales"}],
    policy={"edge_cases": ["Everything that the kernel has started ends with it; files stay."]},
)
async def notebook_reset(ctx: Context, notebook: str = "") -> str:
    """Restart a notebook: end its kernel and forget its variables. The next cell begins with a new kernel.

    Args:
        notebook: Which notebook; the current one when not given.
    """
    kept = notebooks_of(ctx).find(notebook)
    cells = kept.cells
    aside = await kept.close()
    notes = [f"put aside, for commands may not make it: {path}" for path in aside]
    return "\n".join([f"{kept.name} is empty; cells forgotten: {cells}", *(f"[{note}]" for note in notes)])


@_notebook_tool(op="x.notebook.list", kind="read", tags=_TAGS, examples=[{}])
async def notebook_list(ctx: Context) -> list[NotebookInfo]:
    """List the notebooks of this conversation: which is current, which run a cell, how many cells each has run."""
    shelf = notebooks_of(ctx)
    return [
        {
            "notebook": kept.name,
            "current": kept.name == shelf.current,
            "backend": kept.backend,
            "language": kept.kernel.language if kept.kernel is not None else "",
            "gpu": kept.gpu,
            "state": ("busy" if kept.turn.locked() else "idle") if kept.is_alive else "not started",
            "cells": kept.cells,
            "seconds": int(kept.kernel.age) if kept.kernel is not None and kept.is_alive else 0,
        }
        for kept in shelf.all()
    ]


@_notebook_tool(op="x.notebook.backends", kind="read", tags=[*_TAGS, "gpu", "languages"], examples=[{}])
async def notebook_backends(ctx: Context) -> Backends:
    """List what notebooks can run on: kernels and their languages, graphics cards (GPU), whether there is network."""
    interpreter, sandbox = interpreter_of(ctx), sandbox_of(ctx)
    gpus, why = await _gpus(ctx)
    return {
        "kernels": await _kernels(ctx, interpreter),
        "python": str(interpreter.program),
        "sandbox": sandbox.kind,
        "network": reached_by(sandbox),
        "gpus": gpus,
        "gpu": why,
    }


def _rows(data: object) -> Iterator[Variable]:
    """Yield the variables of a kernel's report, which is not trusted: the kernel may send any data."""
    for entry in as_list(data):
        row = as_mapping(entry)
        name, kind, value = (str(row.get(key, ""))[:_FIELD] for key in ("name", "type", "value"))
        variable: Variable = {"name": name, "type": kind, "value": value}
        size = row.get("size")
        if size is not None:
            variable["size"] = size if isinstance(size, int) else str(size)[:_FIELD]
        yield variable


async def _kernels(ctx: Context, interpreter: Interpreter) -> list[dict[str, str]]:
    """Return the kernels that this Python knows in the sandbox. Raises `ToolFailure("unavailable")` when it cannot."""
    finished, output, words = await _run_short(ctx, command_of(ctx, interpreter, "--list"))
    for line in output.splitlines():
        try:
            data: Any = json.loads(line)
        except (ValueError, RecursionError):  # what the interpreter prints at its start, by a `sitecustomize`
            continue
        if isinstance(data, dict):
            event = cast("dict[str, Any]", data)
            if event.get("event") == "kernels":
                return cast("list[dict[str, str]]", event["kernels"])
            words = str(event.get("why", ""))
    how = status_of(finished) if finished is not None else "it took too long"
    raise ToolFailure(
        "unavailable",
        f"{interpreter.program} cannot run notebooks: {words.strip()[-_LAST_CHARACTERS:] or how}",
        hint=NEEDED,
    )


async def _gpus(ctx: Context) -> tuple[list[str], str]:
    """Return the graphics cards that code in the sandbox can use, and a sentence about that."""
    place = workspace_of(ctx)
    command = Command(argv=_GPUS, cwd=place.root, folders=place.roots)
    try:
        finished, output, _ = await _run_short(ctx, command)
    except ToolFailure as failure:  # there is no such program
        finished, output = None, failure.message
    found = [line.strip() for line in output.splitlines() if line.strip()]
    if finished is not None and finished.status == 0 and found:
        return found, f"nvidia-smi names {len(found)}"
    if sandbox_of(ctx).kind != "none":
        return [], "the sandbox shows no graphics card to the code that runs in it"
    return [], "there is no graphics card that nvidia-smi knows"


async def _run_short(ctx: Context, command: Command) -> tuple[Finished | None, str, str]:
    """Return the exit of a short program and its output on both streams."""
    streams = {"stdout": OutputBuffer(_MOST), "stderr": OutputBuffer(_MOST)}

    async def take(name: Literal["stdout", "stderr"], piece: bytes) -> None:
        streams[name].add(piece)

    finished: Finished | None = None
    async with sandbox_of(ctx).open(command) as running:
        await running.close_input()
        with anyio.move_on_after(min(_PROBE, ctx.remaining)):
            finished = await follow(running, take)
    return finished, streams["stdout"].take(), streams["stderr"].take()
