"""Signatures that list the options of a function, for `help`, interactive shells and notebooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any


class _NotGiven:
    """Default of an option that may be left out."""

    def __repr__(self) -> str:
        return "..."


def with_options(function: Callable[..., Any], options: type) -> Signature:
    """Return the signature of `function`, with the options of a `TypedDict` in place of `**options`."""
    signature = inspect.signature(function)
    listed: list[Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.kind is not Parameter.VAR_KEYWORD:
            listed.append(parameter)
            continue
        for name, kind in options.__annotations__.items():
            kind = getattr(kind, "__forward_arg__", kind)
            listed.append(Parameter(name, Parameter.KEYWORD_ONLY, default=_NotGiven(), annotation=kind))
    return signature.replace(parameters=listed)
