"""What the golden suites stand on: a crib with the tools of one seed, over its world."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from toolcrib.config import bare
from toolcrib.core.json import dumps
from toolcrib.core.result import ToolResult
from toolcrib.crib import Session, Toolcrib
from toolcrib.sources.yaml.source import YamlSource

SEEDS = Path(__file__).parent


@asynccontextmanager
async def seeded(seed: str, **settings: Any) -> AsyncGenerator[Toolcrib]:
    """Open a crib with the tools of seed 001 or 004 (`<seed>.yaml`), under their own names; nobody is asked."""
    values = {"mode": "autonomous", **({"builtins": ("onto", "cal")} if seed == "gateway" else {}), **settings}
    async with Toolcrib(bare().with_values(**values), memory=True) as crib:
        source = YamlSource(seed, SEEDS / f"{seed}.yaml")
        await crib.tools.mount_source(source, prefix=False, trusted=True)
        await source.ready()
        yield crib


async def in_project(crib: Toolcrib, **options: Any) -> Session:
    """Open a session of seed 001 in a project of its own, with what is made for projects only.

    It belongs to a principal of its own, unless `principal` names one.
    """
    principal = options.get("principal") or f"user {secrets.token_hex(4)}"
    user = crib.session(profile="gateway", principal=principal, mode="autonomous")
    bridge = {"name": "Bridge", "type_key": "project.technical.bridge"}
    given: dict[str, Any] = {"project": bridge, "entities": [], "relationships": []}
    made = answer_of(await user.call("tool_exec", {"op": "onto.project.create", "args": given}))
    context = {"project_id": made["result"]["project_id"]}
    known: dict[str, Any] = {"profile": "gateway", "context": context, "contexts": ("global", "project"), **options}
    known["principal"] = principal
    return crib.session(**known)


def project_of(session: Session) -> str:
    """Return the project of a session's context."""
    return str(session.state.defaults["project_id"])


@asynccontextmanager
async def built_in(**settings: Any) -> AsyncGenerator[Toolcrib]:
    """Open a crib with the tools that come with us; nobody is asked for anything."""
    async with Toolcrib(
        bare().with_values(**{"builtins": True, "mode": "autonomous", **settings}), memory=True
    ) as crib:
        yield crib


@asynccontextmanager
async def catalog_of(name: str) -> AsyncGenerator[Toolcrib]:
    """Open a crib with the tools of a seed, or with some of those that come with us (`builtin`)."""
    some = ("coordination", "hooks", "math", "memory", "system", "tasks")
    async with built_in(builtins=some) if name == "builtin" else seeded(name) as crib:
        yield crib


def names(session: Session) -> list[str]:
    """Return the names of the tools that the session's model sees, in order."""
    return [tool.name for tool in session.tools]


def answer_of(result: ToolResult) -> Any:
    """Return what the model reads as JSON: the structured content."""
    return result.structured_content


async def told(session: Session, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """Return what the model reads of a call that succeeds; structured content and text say the same."""
    result = await session.call(name, arguments)
    assert not result.is_error, result.text
    assert json.loads(result.text) == answer_of(result)
    return answer_of(result)


async def failed(session: Session, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """Return what the model reads of a call that does not; structured content and text say the same."""
    result = await session.call(name, arguments)
    assert result.is_error
    assert json.loads(result.text) == answer_of(result)
    return answer_of(result)


async def said(arguments: Mapping[str, Any], context: object) -> ToolResult:
    """The body of a tool of which nothing is expected but that it runs."""
    return ToolResult.of_text("said")


def sent(session: Session) -> int:
    """Estimate the tokens of the definitions as an API is sent them."""
    return sum(len(dumps([tool.name, tool.description, tool.input_schema])) // 4 for tool in session.tools)
