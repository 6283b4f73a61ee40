"""First screen: folder, model and the reason for it, tools, and what to type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from toolcrib import Problem
from toolcrib.core.extras import install_extra

from .chat_session import ChatSession, mode_style
from .model_discovery import KEYS, LOCAL_ENDPOINTS, MODEL_VARIABLE, is_usable
from .screen import Screen, plain

_PROBLEMS: Final = 5
"""Problems shown one by one; `toolcrib doctor` lists all."""
NO_MODEL_HINT: Final = "no model is configured. Type /help, or make calls yourself: call TOOL name=value"


def welcome(chat: ChatSession) -> None:
    """Print the first screen."""
    folder = Path(chat.saved.folder)
    home = chat.settings.directories.home
    shown = f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) and folder != home else str(folder)
    mode = chat.session.mode
    change = "  Shift-Tab goes to the next" if chat.keyboard.has_keys else "  /mode shows all"
    table = Table.grid(padding=(0, 2))
    table.add_row(Text("folder", style="dim"), plain(shown))
    if chat.choice:
        why = (f"  {chat.choice.why}", "dim")
        table.add_row(Text("model", style="dim"), Text.assemble(plain(chat.choice.model), why))
    table.add_row(Text("tools", style="dim"), _tools(chat))
    table.add_row(Text("mode", style="dim"), Text.assemble((mode, f"bold {mode_style(mode)}"), (change, "dim")))
    chat.screen.say(Text.assemble(("▌ ", "cyan"), ("toolcrib chat", "bold")))
    chat.screen.say(table, indent=2)
    if chat.choice is None:
        chat.screen.gap()
        chat.screen.say(_no_model(chat.settings.environment), indent=2)
    chat.screen.say(Text("/help lists what you can type", style="dim"), indent=2)
    chat.screen.gap()


def _no_model(environ: Mapping[str, str]) -> Group:
    """Say how to get a model: exactly which variables, which programs, and what works without one."""
    others = [key for key in KEYS if not is_usable(key)]
    lines = [Text("no model was found", style="bold yellow")]
    if find_spec("pydantic_ai") is None:
        lines.append(Text(f"what talks to models is not installed; {install_extra('chat')}", style="yellow"))
    advice = "{0.variable} is set, and needs: pip install '{0.extra}'"
    lines += [Text(advice.format(key), style="yellow") for key in others if environ.get(key.variable)]
    ways = _rows(
        {
            "set one of": ", ".join(key.variable for key in KEYS if is_usable(key)),
            "or, with more": ", ".join(f"{key.variable} ({key.extra})" for key in others),
            "or start": f"{', '.join(f'{one.name} ({one.port})' for one in LOCAL_ENDPOINTS)} on this machine",
            "or name one": f"--model provider:name, {MODEL_VARIABLE}=provider:name, or chat: {{model: provider:name}}",
        },
        "dim",
    )
    hand = _rows(
        {
            "/context": "what a model would see, and what it costs",
            "/find WHAT": "search the tools as it would",
            "call TOOL name=value": "call one, through the same door",
        },
        "cyan",
    )
    return Group(*lines, ways, Text(), Text("Until then you can be the model:", style="bold"), hand)


def without_model() -> str:
    """Say the same in one paragraph, for a script."""
    variables = ", ".join(key.variable for key in KEYS)
    local = ", ".join(one.name for one in LOCAL_ENDPOINTS)
    lacks = "" if find_spec("pydantic_ai") else "; the extra `chat`, which talks to models, is not installed either"
    return f"no model was found: set one of {variables}; or start {local}; or say --model provider:name{lacks}"


def _rows(rows: Mapping[str, str], style: str) -> Table:
    table = Table.grid(padding=(0, 2))
    for title, text in rows.items():
        if text:
            table.add_row(Text(title, style=style), Text(text))
    return table


def _tools(chat: ChatSession) -> Text:
    count = sum(chat.session.visible.offered_by_source().values())
    waiting = [state.source for state in chat.crib.tools.sources if state.state == "connecting"]
    summary = Text(f"{count}, {len(chat.session.tools)} shown, ≈{chat.surface:,} tokens")
    if waiting:
        summary.append(f"  {', '.join(waiting)} still connecting", style="yellow")
    return summary


def tell_problems(screen: Screen, problems: Sequence[Problem]) -> None:
    """Print what could not be taken; a source's problems of one kind in one line."""
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
