"""A workflow as it is written, read and checked as far as it can be without the tools that it names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, cast

from ...core.schema.nodes import properties_of
from ...core.schema.validator import compile_schema
from ...errors import ConfigError, UsageError
from .template import Template

__all__ = ["RESUME", "Step", "Workflow", "read_workflow"]

RESUME: Final = "resume_id"
"""The argument by which a run that broke off goes on."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_KEYS: Final = ("description", "title", "category", "tags", "input", "steps", "output", "background_after")
_STEP_KEYS: Final = ("tool", "arguments", "after", "timeout")
_MAX_STEPS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call. It runs as soon as the steps that it needs have ended well."""

    name: str
    tool: str
    """A name of the catalog, or an alias."""
    arguments: Template
    needs: frozenset[str]
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """Several calls as one tool. `steps` are in an order in which they could run one after another."""

    name: str
    description: str
    title: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    input_schema: Mapping[str, Any]
    steps: tuple[Step, ...]
    output: Template
    background_after: float | None = None


def read_workflow(name: str, given: Any) -> Workflow:
    """Return the workflow that `given` describes. Raises `ConfigError` naming the key, below `workflows.NAME`."""
    key = f"workflows.{name}"
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be a tool's name: letters, digits, _ and -, at most 64", key=key)
    values = _mapping(given, key, _KEYS)
    steps = _steps(values.get("steps"), key)
    last = next(reversed(steps))
    output = _template(values.get("output", {"$from": f"$.steps.{last}"}), f"{key}.output")
    _check_needs(output.steps, steps, f"{key}.output")
    after = values.get("background_after")
    if after is not None and (isinstance(after, bool) or not isinstance(after, int | float) or after < 0):
        raise ConfigError("a number of seconds was expected", key=f"{key}.background_after")
    return Workflow(
        name=name,
        description=_text(values, "description", key) or f"Runs {', '.join(step.tool for step in steps.values())}.",
        title=_text(values, "title", key),
        category=_text(values, "category", key),
        tags=_texts(values.get("tags") or (), f"{key}.tags"),
        input_schema=_schema(values.get("input"), f"{key}.input"),
        steps=_in_order(steps, key),
        output=output,
        background_after=after,
    )


def _steps(given: Any, key: str) -> dict[str, Step]:
    steps: dict[str, Step] = {}
    for name, written in _mapping(given, f"{key}.steps").items():
        where = f"{key}.steps.{name}"
        values = _mapping(written, where, _STEP_KEYS)
        arguments = _template(values.get("arguments") or {}, f"{where}.arguments")
        timeout = values.get("timeout")
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0):
            raise ConfigError("a number of seconds above 0 was expected", key=f"{where}.timeout")
        tool = _text(values, "tool", where)
        if not tool:
            raise ConfigError("the name of a tool was expected", key=f"{where}.tool")
        after = _texts(values.get("after") or (), f"{where}.after")
        steps[name] = Step(
            name=name, tool=tool, arguments=arguments, needs=arguments.steps | set(after), timeout=timeout
        )
    if not steps:
        raise ConfigError("at least one step was expected", key=f"{key}.steps")
    if len(steps) > _MAX_STEPS:
        raise ConfigError(f"{len(steps)} steps; at most {_MAX_STEPS}", key=f"{key}.steps")
    for step in steps.values():
        _check_needs(step.needs, steps, f"{key}.steps.{step.name}")
    return steps


def _in_order(steps: Mapping[str, Step], key: str) -> tuple[Step, ...]:
    try:
        order = TopologicalSorter({name: sorted(step.needs) for name, step in steps.items()}).static_order()
        return tuple(steps[name] for name in order)
    except CycleError as error:
        circle = " → ".join(reversed(cast("list[str]", error.args[1])))
        raise ConfigError(f"the steps wait for one another: {circle}", key=f"{key}.steps") from None


def _check_needs(needs: frozenset[str], steps: Mapping[str, Step], key: str) -> None:
    for name in sorted(needs - set(steps)):
        near = get_close_matches(name, steps, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"there is no step {name!r}{meant}", key=key)


def _schema(given: Any, key: str) -> Mapping[str, Any]:
    """Return the schema of the input: one that was written, or made of `{name: schema}`, all of them required."""
    if given is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    values = _mapping(given, key)
    if "type" not in values or isinstance(values["type"], Mapping):
        properties = {name: {"type": part} if isinstance(part, str) else part for name, part in values.items()}
        required = [name for name, part in properties.items() if not (isinstance(part, Mapping) and "default" in part)]
        values = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if values.get("type") != "object":
        raise ConfigError("the input of a tool is an object", key=f"{key}.type")
    if RESUME in properties_of(values, values):
        raise ConfigError(f"{RESUME} is ours: it goes on with a run that broke off", key=f"{key}.properties.{RESUME}")
    try:
        compile_schema(values)
    except ValueError as error:
        raise ConfigError(f"no valid JSON Schema: {error}", key=key) from None
    return values


def _template(given: Any, key: str) -> Template:
    try:
        return Template(given)
    except UsageError as error:
        raise ConfigError(str(error), key=key) from None


def _mapping(given: Any, key: str, known: tuple[str, ...] | None = None) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError("a mapping was expected", key=key)
    values = cast("Mapping[Any, Any]", given)
    for name in values:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{name!r} is no name", key=key)
        if known is not None and name not in known:
            near = get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
            raise ConfigError(f"unknown key{meant}", key=f"{key}.{name}")
    return values


def _text(values: Mapping[str, Any], name: str, key: str) -> str:
    value = values.get(name, "")
    if not isinstance(value, str):
        raise ConfigError("a text was expected", key=f"{key}.{name}")
    return value.strip()


def _texts(given: Any, key: str) -> tuple[str, ...]:
    items = [given] if isinstance(given, str) else given
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in cast("list[Any]", items)):
        raise ConfigError("a list of texts was expected", key=key)
    return tuple(cast("list[str]", items))
