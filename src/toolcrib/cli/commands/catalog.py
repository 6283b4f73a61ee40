"""`toolcrib tools`, `find` and `show`: what there is, what fits, and one tool in full."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import typer
from msgspec import Struct
from msgspec.structs import replace

from ...catalog.catalog import BUILTIN_SOURCES
from ...core.similar import unknown_name
from ...core.tool import Tool
from ...crib import Toolcrib
from ...crib.plugins import GUESTS, guest_packages
from ...disclosure.signatures import call_example, signature
from ...errors import CODES, ToolFailure, UsageError
from ...telemetry.tokens import Tokenizer, definition_tokens, tokenizer
from ..open_crib import only_for, opened, report, report_missing
from ..options import AsJson, ConfigFiles, Wait, run, settings_of
from ..output import Column, counted, emit_json, escape, note, out, table

_COLUMNS: Final[tuple[Column, ...]] = (
    ("TOOL", "<"),
    ("SOURCE", "<"),
    ("CATEGORY", "<"),
    ("TOKENS", ">"),
    ("STATE", "<"),
)


class Listed(Struct, frozen=True, kw_only=True):
    """One tool as the lists show it."""

    name: str
    aliases: tuple[str, ...]
    source: str
    category: str
    tokens: int
    state: str
    """The state of its source, or of the server that it calls (`ready` …), what it `needs`, or why it is withheld."""

    @classmethod
    def of(cls, tool: Tool, state: str, counter: Tokenizer, names: Iterable[str] = ()) -> Listed:
        """Count and describe `tool`; `names` are what the profile calls it."""
        return cls(
            name=tool.name,
            aliases=tuple(dict.fromkeys((*tool.aliases, *(name for name in names if name != tool.name)))),
            source=tool.source,
            category=tool.category,
            tokens=definition_tokens(tool, counter),
            state=state,
        )


def list_tools(crib: Toolcrib, counter: Tokenizer) -> list[Listed]:
    """Return every tool that exists, callable or withheld, in the catalog's order, built-in ones behind the others."""
    visible, listed = crib.session().visible, list[Listed]()
    for tool in crib.catalog.tools.values():
        state = "denied" if visible.is_denied(tool) else _state_of(crib, tool)
        listed.append(Listed.of(tool, state, counter, visible.aliases.names(tool)))
    listed += [Listed.of(tool, code, counter) for tool, code in _withheld(crib)]
    packages = _packages(crib)
    listed = [replace(tool, source=packages.get(tool.name, tool.source)) for tool in listed]
    return sorted(listed, key=lambda tool: tool.source in BUILTIN_SOURCES)


def _packages(crib: Toolcrib) -> Mapping[str, str]:
    """Return the installed packages of the tools that came without a plugin, by the tools' names; not ours."""
    known, packages = crib.catalog.tools, guest_packages(crib.catalog).items()
    return {tool: name for name, (_, tools) in packages for tool in tools if known[tool].source == GUESTS}


def tools(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE …", help="Only tools of these; all, when none is named, the built-in ones in one line."
        ),
    ] = None,
    config: ConfigFiles = None,
    as_json: AsJson = False,
    wait: Wait = 10.0,
) -> None:
    """List every tool, where it comes from and what its definition costs."""
    settings = settings_of(config)

    async def main() -> list[Listed]:
        async with opened(settings, wait=wait) as crib:
            report(crib)
            listed = list_tools(crib, tokenizer())
            known = {state.source for state in crib.tools.sources} | {tool.source for tool in listed}
            if missing := [name for name in sources or () if name not in known]:
                raise UsageError(unknown_name("source", missing[0], known) if known else "there is no source yet")
            return [tool for tool in listed if not sources or tool.source in sources]

    listed = run(main)
    if as_json:
        emit_json([_row(tool) | {"tokenizer": tokenizer().name} for tool in listed])
        return
    counter = tokenizer()
    own = [tool for tool in listed if tool.source not in BUILTIN_SOURCES]
    built_in = [tool for tool in listed if tool.source in BUILTIN_SOURCES]
    is_brief = bool(own) and not sources and settings.sources.builtins is True
    table(
        _COLUMNS,
        (
            (tool.name, tool.source, tool.category, counter.shown(tool.tokens), tool.state)
            for tool in (own if is_brief else listed)
        ),
    )
    if listed:
        out("")
    if own or not built_in:
        number = f"{counted(len(own), 'tool')} of {counted(len({tool.source for tool in own}), 'source')}"
        out(f"{number}, {_tokens_of(own, counter)} definition tokens ({counter.name})")
    if built_in:
        more = f"{counted(len(built_in), 'built-in tool')}, {_tokens_of(built_in, counter)} tokens"
        where = " (`toolcrib tools builtin` lists them)" if is_brief else ""
        out(f"{more}{where}: a gateway serves those that the key `builtins` names")


def _tokens_of(listed: Iterable[Listed], counter: Tokenizer) -> str:
    return counter.shown(sum(tool.tokens for tool in listed))


def find(
    query: Annotated[list[str], typer.Argument(help="What you want to do, in your own words.")],
    limit: Annotated[int, typer.Option("--limit", "-k", help="How many to show.", min=1, max=100)] = 5,
    config: ConfigFiles = None,
    as_json: AsJson = False,
    wait: Wait = 10.0,
) -> None:
    """Search the tools for what you want to do. Ends with status 3 when nothing fits."""
    words = " ".join(query)

    async def main() -> tuple[list[tuple[Tool, float]], list[str], Mapping[str, str]]:
        async with opened(settings_of(config), wait=wait) as crib:
            catalog = crib.catalog
            report(crib)
            hits = [(catalog.tools[hit.name], hit.score) for hit in catalog.search(words, limit)]
            return hits, list(catalog.nearest_categories(words)), _packages(crib) if as_json else {}

    hits, categories, packages = run(main)
    if as_json:
        emit_json([_hit(tool, score) | {"source": packages.get(tool.name, tool.source)} for tool, score in hits])
    elif hits:
        rows = ((tool.name, tool.kind, tool.summary) for tool, _ in hits)
        table((("TOOL", "<"), ("KIND", "<"), ("SUMMARY", "<")), rows)
    if not hits:
        note(f"nothing fits {words!r}; nearest: {', '.join(categories) or 'no tools yet'}")
        raise typer.Exit(CODES["not_found"].exit)


def show(
    name: Annotated[str, typer.Argument(metavar="TOOL", help="Its name, or SERVER/NAME as the server calls it.")],
    config: ConfigFiles = None,
    as_json: AsJson = False,
    wait: Wait = 10.0,
) -> None:
    """Show one tool: definition, signature, example, state."""

    async def main() -> tuple[Tool, str, str, tuple[str, ...], str]:
        async with opened(only_for(settings_of(config), name), wait=wait) as crib:
            session = crib.session()
            labels = session.visible.aliases
            label = labels.rename_of(name)
            try:
                tool, state = _look_up(crib, label.tool if label is not None else name)
                changes = {} if tool.source.startswith("rest@") else await crib.tools.changes(tool.source)
                source = _packages(crib).get(tool.name, tool.source) if tool.source == GUESTS else tool.source
                return tool, state, changes.get(tool.local_name, ""), labels.names(tool), source
            except ToolFailure:
                report_missing(crib, session, name)
                raise

    tool, state, changed, names, source = run(main)
    counter = tokenizer()
    row = _row(Listed.of(tool, state, counter, names))
    row |= {
        "source": source,
        "kind": tool.kind,
        "signature": signature(tool),
        "example": call_example(tool),
        "tokenizer": counter.name,
        "definition": tool.definition,
        "version": tool.version,
        "versions": [other.version for other in (tool, *tool.older)] if tool.older else [],
        "deprecated": tool.deprecated,
        "replaced_by": tool.replaced_by,
        "migrates": list(tool.migrations),
        "changed": changed,
    }
    if as_json:
        emit_json(row)
    else:
        _print_tool(tool, row, counter)


def _print_tool(tool: Tool, row: Mapping[str, Any], counter: Tokenizer) -> None:
    for key in ("name", "aliases", "source", "category", "kind", "state"):
        value = ", ".join(row[key]) if key == "aliases" else row[key]
        if value:
            out(f"{key + ':':<12}{escape(value)}")
    _print_version(tool)
    out(f"{'tokens:':<12}{counter.shown(row['tokens'])} ({counter.name})")
    out(f"{'signature:':<12}{escape(row['signature'])}")
    out(f"{'example:':<12}{escape(json.dumps(row['example'], ensure_ascii=False))}", verbatim=True)
    out(f"\n{escape(tool.description, lines=True)}\n\ninput schema:")
    emit_json(tool.input_schema)
    if row["changed"]:
        out(f"\nchanged since it was reviewed:\n{row['changed']}", verbatim=True)


def _print_version(tool: Tool) -> None:
    """Say which version this is, which others a session can pin, and what becomes of it."""
    if tool.version:
        out(f"{'version:':<12}{escape(tool.version)}")
    for other in tool.older:
        out(f"{'':<12}{escape(other.version or 'without one')}{' (deprecated)' if other.deprecated else ''}, by pin")
    if tool.migrations:
        out(f"{'':<12}takes arguments of {escape(', '.join(tool.migrations))}")
    if tool.deprecated:
        instead = f"; use {tool.replaced_by}" if tool.replaced_by else ""
        out(f"{'deprecated:':<12}{escape(tool.deprecated + instead)}")


def _row(tool: Listed) -> dict[str, Any]:
    return {
        "name": tool.name,
        "aliases": list(tool.aliases),
        "source": tool.source,
        "category": tool.category,
        "tokens": tool.tokens,
        "state": tool.state,
    }


def _hit(tool: Tool, score: float) -> dict[str, Any]:
    return {
        "name": tool.name,
        "source": tool.source,
        "kind": tool.kind,
        "summary": tool.summary,
        "signature": signature(tool),
        "score": round(score, 3),
    }


def _withheld(crib: Toolcrib) -> Iterable[tuple[Tool, str]]:
    """The tools that exist but may not be called, each with the code of the reason."""
    codes = {(problem.source, problem.tool): problem.code for problem in crib.catalog.withheld.values()}
    names = {(problem.source, problem.tool): name for name, problem in crib.catalog.withheld.items()}
    for source in dict.fromkeys(source for source, _ in codes):
        for tool in crib.tools.listed(source):
            key = (source, tool.local_name)
            if key in codes:
                yield replace(tool, name=names[key]), codes[key]


def _state_of(crib: Toolcrib, tool: Tool) -> str:
    missing = tool.availability.missing
    return f"needs {missing}" if missing else crib.tools.state_of(tool).state


def _look_up(crib: Toolcrib, name: str) -> tuple[Tool, str]:
    """Return the tool that `name` means and its state; raises `ToolFailure` with the nearest names."""
    tool = crib.catalog.find(name)
    if tool is not None:
        return tool, _state_of(crib, tool)
    source, _, local = name.partition("/")
    for withheld, code in _withheld(crib):
        if name == withheld.name or (withheld.source, withheld.local_name) == (source, local):
            return withheld, code
    for known in crib.catalog.tools.values():
        if (known.source, known.local_name) == (source, local):
            return known, _state_of(crib, known)
    if source.startswith("rest@"):
        from ...registration import Registrations  # a slice that few cribs have

        for one in crib.slice(Registrations).of(source.removeprefix("rest@")):
            if one.name == local:
                return one.tool, one.state
    near = crib.catalog.nearest(name)
    hint = f"Did you mean {', '.join(near)}?" if near else "`toolcrib tools` lists all."
    raise ToolFailure("not_found", f"there is no tool {name!r}.", hint=hint)
