"""The first screen: where you are, which model answers and why, what it can use, and what to type."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ...core.events import Problem
from .finding import KEYS, LOCAL_ENDPOINTS, MODEL_VARIABLE, is_usable
from .screen import Screen, plain
from .talk import Talk, mode_style

__all__ = ["NO_MODEL_HINT", "no_model", "tell_problems", "welcome"]

_PROBLEMS: Final = 5
"""That are told one by one; `toolcrib doctor` has all."""
NO_MODEL_HINT: Final = "nobody answers here: there is no model. Type /help, or be the model: call TOOL name=value"


def welcome(talk: Talk) -> None:
    """Print the first screen."""
    folder = Path(talk.saved.folder)
    home = talk.settings.directories.home
    shown = f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) and folder != home else str(folder)
    mode = talk.session.mode
    table = Table.grid(padding=(0, 2))
    table.add_row(Text("folder", style="dim"), plain(shown))
    if talk.found:
        table.add_row(Text("model", style="dim"), Text.assemble(plain(talk.found.model), (f"  {talk.found.why}", "dim")))
    table.add_row(Text("tools", style="dim"), _tools(talk))
    table.add_row(Text("mode", style="dim"), Text.assemble((mode, f"bold {mode_style(mode)}"), ("  Shift-Tab", "dim")))
    talk.screen.say(Text.assemble(("▌ ", "cyan"), ("toolcrib chat", "bold")))
    talk.screen.say(table, indent=2)
    if talk.found is None:
        talk.screen.gap()
        talk.screen.say(no_model(talk.settings.environment.keys()), indent=2)
    talk.screen.say(Text("/help lists what you can type", style="dim"), indent=2)
    talk.screen.gap()


def no_model(variables: object = ()) -> RenderableType:
    """Say how to get a model: exactly which variables, which programs, and what works without one."""
    names = set(variables) if isinstance(variables, type({}.keys())) else set[str]()
    usable = [key.variable for key in KEYS if is_usable(key)]
    others = [f"{key.variable} (pip install '{key.extra}')" for key in KEYS if not is_usable(key)]
    local = ", ".join(f"{one.name} ({one.port})" for one in LOCAL_ENDPOINTS)
    lines = [Text("no model was found", style="bold yellow")]
    if find_spec("pydantic_ai") is None:
        lines.append(Text("what talks to models is not installed: pip install 'toolcrib[chat]'", style="yellow"))
    for key in KEYS:
        if key.variable in names and not is_usable(key):
            lines.append(Text(f"{key.variable} is set, but needs: pip install '{key.extra}'", style="yellow"))
    lines += [
        Text.assemble(("set one of  ", "dim"), ", ".join(usable)),
        Text.assemble(("also        ", "dim"), ", ".join(others)) if others else Text(),
        Text.assemble(("or start    ", "dim"), f"{local} on this machine"),
        Text.assemble(("or name one ", "dim"), f"--model provider:name, {MODEL_VARIABLE}, chat: {{model: …}}"),
        Text(),
        Text("Until then you can be the model:", style="bold"),
        Text.assemble(("/context             ", "cyan"), "what a model would see, and what it costs"),
        Text.assemble(("/find WHAT           ", "cyan"), "search the tools as it would"),
        Text.assemble(("call TOOL name=value ", "cyan"), "call one through the same door"),
        Text(),
    ]
    return Text("\n").join(line for line in lines if line is not None)


def _tools(talk: Talk) -> Text:
    count = len(talk.crib.catalog.tools)
    waiting = [state.source for state in talk.crib.sources if state.state == "connecting"]
    told = Text(f"{count}, {len(talk.session.tools)} shown, ≈{talk.surface:,} tokens")
    if waiting:
        told.append(f"  {', '.join(waiting)} still connecting", style="yellow")
    return told


def tell_problems(screen: Screen, problems: list[Problem]) -> None:
    """Tell what could not be taken; a source's problems of one kind in one line."""
    alike: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        alike.setdefault((problem.source, problem.code), []).append(problem)
    for (source, _), found in list(alike.items())[:_PROBLEMS]:
        first = found[0]
        more = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
        screen.say(Text.assemble(("! ", "yellow"), plain(f"{source}: {first.message}{more}")))
        if first.hint:
            screen.say(plain(first.hint, "dim"), indent=2)
    if len(alike) > _PROBLEMS:
        screen.note(f"and {len(alike) - _PROBLEMS} more: `toolcrib doctor` has all")
