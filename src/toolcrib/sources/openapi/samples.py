"""Arguments that the description itself gives as an example. They may be wrong: whoever takes them checks first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from ...core.json import dumps
from .document import mapping
from .operation import Operation
from .refs import Refs

__all__ = ["samples"]

_MAX_BYTES: Final = 2048


def samples(
    refs: Refs, declared: Iterable[object], node: Mapping[str, Any], operation: Operation
) -> list[Mapping[str, Any]]:
    """Return whole sets of arguments made of the examples of parameters and body, best first; small ones only."""
    given: dict[tuple[str, str], Any] = {}
    for one in declared:
        parameter = refs.resolve(one)
        for value in _values(refs, parameter):
            given[str(parameter.get("in")), str(parameter.get("name"))] = value
            break
    used = {one.argument: (one.place, one.name) for one in operation.parameters if (one.place, one.name) in given}
    base = {argument: given[key] for argument, key in used.items()}
    if operation.body is None:
        return [base] if base and _is_small(base) else []
    content = mapping(mapping(refs.resolve(node.get("requestBody")).get("content")).get(operation.body.media_type))
    found = [_with_body(base, value, operation) for value in _values(refs, content)]
    return [one for one in found if one and _is_small(one)]


def _with_body(base: Mapping[str, Any], value: Any, operation: Operation) -> Mapping[str, Any]:
    body = operation.body
    if body is None or body.files or body.kind == "binary":
        return {}
    if body.argument:
        return {**base, body.argument: value}
    given = mapping(value)
    return {**base, **{argument: given[name] for argument, name in body.properties.items() if name in given}}


def _values(refs: Refs, node: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what `example`, `examples` and the schema's own example say."""
    if "example" in node:
        yield node["example"]
    for one in mapping(node.get("examples")).values():
        try:
            resolved = refs.resolve(one)
        except ValueError:
            continue
        if "value" in resolved:
            yield resolved["value"]
    schema = node.get("schema")
    if isinstance(schema, Mapping):
        try:
            resolved = refs.resolve(cast("Any", schema))
        except ValueError:
            return
        if "example" in resolved:
            yield resolved["example"]


def _is_small(value: Mapping[str, Any]) -> bool:
    try:
        return len(dumps(value)) <= _MAX_BYTES
    except TypeError:
        return False
