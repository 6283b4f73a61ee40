"""Connect to servers once, all at the same time, and say what they offer: for `import`, `add` and `accept`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ..catalog.preflight import findings
from ..config import Settings
from ..core.tool import Tool
from ..crib import Toolcrib
from ..crib.problem_summaries import summaries
from ..mcp.client.spec import ServerSpec
from ..sources.openapi.spec import OpenApiSpec
from ..telemetry.tokens import definition_tokens, tokenizer
from .last_seen import remember
from .open_crib import opened
from .options import run

_UNFIT: Final = frozenset({"bad_tool", "bad_schema", "duplicate", "too_large"})
"""Codes of problems of a tool's own definition; all but the first are also those of a tool that is offered."""


class Probe(Struct, frozen=True, kw_only=True):
    """Result of the probe of one server."""

    server: str
    tools: int = 0
    tokens: int = 0
    """Definition tokens, counted with `telemetry.tokens.tokenizer()`."""
    state: str = ""
    """`ready`, or why it is not."""
    accepted: int = 0
    """Definitions that were taken as reviewed just now."""
    problems: tuple[str, ...] = ()
    """Tools and features that are not offered or withheld, each with the reason."""
    lost: tuple[tuple[str, str], ...] = ()
    """Code and text of those of `problems` because of which a tool of the server cannot be offered at all."""


def described(probed: Probe, wait: float) -> str:
    """Return the state of a server for people: for one that still starts, how long it was waited for.

    One whose tools are known from before is `cached` until it answers.
    """
    state, _, words = probed.state.partition(": ")
    if state not in ("cached", "connecting"):
        return probed.state
    return f"has not answered within {wait:g} s{f' ({words})' if words else ''}"


def probe(
    settings: Settings,
    specs: Sequence[ServerSpec],
    *,
    wait: float,
    accept: bool,
    apis: Sequence[OpenApiSpec] = (),
) -> dict[str, Probe]:
    """List the tools of `specs` and `apis` within `wait` seconds; `accept` takes what they list as reviewed."""
    names = [spec.name for spec in (*specs, *apis)]
    if not names:
        return {}
    only = settings.with_values(
        servers=tuple(specs),
        openapi=tuple(apis),
        builtins=False,
        problems=(),
        accept=False,
        no_prefix=False,
    )

    async def main() -> dict[str, Probe]:
        async with opened(only, wait=wait, fresh=True) as crib:
            return {name: await probe_source(crib, name, accept=accept) for name in names}

    probes = run(main)
    remember(settings.directories.cache, servers={spec.key(): _seen(probes[spec.name]) for spec in specs})
    return probes


def _seen(probed: Probe) -> dict[str, str]:
    state, _, detail = probed.state.partition(": ")
    return {"state": state, "detail": detail}


async def probe_source(crib: Toolcrib, name: str, *, accept: bool = False) -> Probe:
    """Return the state of one source of an open crib; `accept` takes what it lists as reviewed."""
    state = next(state for state in crib.tools.sources if state.source == name)
    listed: tuple[Tool, ...] = crib.tools.listed(name)
    plain = [tool.local_name for tool in listed if not findings(tool)]  # the others are for a person to look at
    accepted = await crib.tools.accept(name, plain) if accept and listed else []
    counter = tokenizer()
    problems = [(problem, text) for problem, text in summaries(crib.problems) if problem.source == name]
    offered = {tool.local_name for tool in listed}
    return Probe(
        server=name,
        tools=len(listed),
        tokens=sum(definition_tokens(tool, counter) for tool in listed),
        state=state.state if not state.detail or state.state == "ready" else f"{state.state}: {state.detail}",
        accepted=len(accepted),
        problems=tuple(text for _, text in problems),
        lost=tuple(
            (problem.code, text)
            for problem, text in problems
            if problem.code == "collision" or (problem.code in _UNFIT and problem.tool and problem.tool not in offered)
        ),
    )
