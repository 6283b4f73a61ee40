"""Notebooks of one session, by name. No other session can reach them, and they end with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

import anyio

from toolcrib.plugin import Context, ToolFailure

from .kernels import Kernel, command_of, interpreter_of

__all__ = ["MAIN", "Notebook", "NotebookRegistry", "notebooks_of"]

MAIN: Final = "main"
"""The notebook that is there without being made."""
_MOST: Final = 4
"""Kernels at a time in one session: each takes some 80 MB."""
_NAMED: Final = 32
_KEY: Final = "notebook.kernels"


@dataclass(slots=True, kw_only=True, eq=False)
class Notebook:
    """A notebook: what it is called and runs with, and its kernel while there is one."""

    name: str
    backend: str = "python3"
    """Jupyter's name of the kernel."""
    gpu: bool = False
    kernel: Kernel | None = None
    cells: int = 0
    """Number of cells since the last start."""
    lost: str = ""
    """Reason why earlier variables are lost; a note of the next cell."""
    turn: anyio.Lock = field(default_factory=anyio.Lock, repr=False)

    @property
    def is_alive(self) -> bool:
        """True if its kernel runs."""
        return self.kernel is not None and not self.kernel.is_over

    async def close(self) -> tuple[str, ...]:
        """End the kernel; return what it made and may not make, by its new names."""
        kernel, self.kernel, self.cells, self.lost = self.kernel, None, 0, ""
        if kernel is None:
            return ()
        await kernel.aclose()
        return kernel.aside


@dataclass(slots=True, eq=False)
class NotebookRegistry:
    """The notebooks of one session."""

    current: str = MAIN
    """The one that is meant when none is named: the one made last."""
    _notebooks: dict[str, Notebook] = field(default_factory=lambda: {MAIN: Notebook(name=MAIN)})

    def find(self, name: str) -> Notebook:
        """Return a notebook, the current one without a name. Raises `ToolFailure("not_found")` naming the others."""
        if (name or self.current) in self._notebooks:
            return self._notebooks[name or self.current]
        near = get_close_matches(name, self._notebooks, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise ToolFailure(
            "not_found",
            f"there is no notebook {name!r}{meant}",
            hint=f"there are {', '.join(self._notebooks)}; notebook_create makes one",
        )

    def all(self) -> list[Notebook]:
        """Return all notebooks, in the order in which they were made."""
        return list(self._notebooks.values())

    async def create(self, ctx: Context, notebook: Notebook) -> Kernel:
        """Take a new notebook up, start its kernel and make it the current one.

        Raises `ToolFailure`: `conflict` for a name that is taken, `overloaded`, and those of `kernel`.
        """
        before = self._notebooks.get(notebook.name)
        if before is not None and (before.cells or before.is_alive):
            hint = "use it as it is, empty it with notebook_reset, or take another name"
            raise ToolFailure("conflict", f"there is a notebook {notebook.name!r} already", hint=hint)
        if before is None and len(self._notebooks) >= _NAMED:
            raise ToolFailure(
                "overloaded", f"this session has {_NAMED} notebooks already: {', '.join(self._notebooks)}"
            )
        self._notebooks[notebook.name] = notebook
        try:
            kernel = await self.kernel(ctx, notebook)
        except BaseException:
            if self._notebooks.get(notebook.name) is notebook:
                if before is None:
                    del self._notebooks[notebook.name]
                else:
                    self._notebooks[notebook.name] = before
            raise
        self.current = notebook.name
        return kernel

    async def kernel(self, ctx: Context, notebook: Notebook) -> Kernel:
        """Return the kernel of a notebook, started on first use.

        Raises `ToolFailure`: `overloaded` when there are too many, `unavailable` for one that does not start.
        """
        if notebook.kernel is not None and not notebook.kernel.is_over:
            return notebook.kernel
        if notebook.kernel is not None:
            notebook.lost, notebook.cells = notebook.kernel.ending(), 0
        alive = [other.name for other in self._notebooks.values() if other.is_alive]
        if len(alive) >= _MOST:
            raise ToolFailure(
                "overloaded",
                f"this session runs {_MOST} kernels already: {', '.join(alive)}",
                hint="notebook_reset ends one",
            )
        command = command_of(ctx, interpreter_of(ctx), notebook.backend, gpu=notebook.gpu)
        kernel = notebook.kernel = Kernel(command=command)
        try:
            await kernel.begin(ctx)
        except BaseException:
            notebook.kernel = None
            raise
        return kernel

    async def aclose(self) -> None:
        """End all kernels: the session is over."""
        async with anyio.create_task_group() as group:
            for notebook in self.all():
                group.start_soon(notebook.close)


def notebooks_of(ctx: Context) -> NotebookRegistry:
    """Return the notebooks of the session that makes this call."""
    found = ctx.runtime.get(_KEY)
    if not isinstance(found, NotebookRegistry):
        found = ctx.runtime[_KEY] = NotebookRegistry()
    return found
