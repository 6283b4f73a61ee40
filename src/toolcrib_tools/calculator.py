"""Exact arithmetic. The expression is parsed and walked; nothing of it is ever evaluated as Python."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from toolcrib.plugin import ToolFailure, tool

__all__ = ["calculate"]

_Number = int | float

_MAX_BITS: Final = 4_096
"""Of an exact integer; beyond that a calculation could take the machine down (`9**9**9`)."""
_MAX_LENGTH: Final = 1_000


def _divide(left: _Number, right: _Number) -> _Number:
    return left / right


def _floor_divide(left: _Number, right: _Number) -> _Number:
    return left // right


_BINARY: Final[Mapping[type[ast.operator], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.FloorDiv: _floor_divide,
    ast.Mod: operator.mod,
}
_UNARY: Final[Mapping[type[ast.unaryop], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_CONSTANTS: Final = {"e": math.e, "pi": math.pi, "tau": math.tau}
_FUNCTIONS: Final[Mapping[str, Any]] = {
    "abs": abs,
    "acos": math.acos,
    "asin": math.asin,
    "atan": math.atan,
    "atan2": math.atan2,
    "ceil": math.ceil,
    "cos": math.cos,
    "degrees": math.degrees,
    "exp": math.exp,
    "floor": math.floor,
    "gcd": math.gcd,
    "hypot": math.hypot,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": max,
    "min": min,
    "radians": math.radians,
    "round": round,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
}


@tool(
    category="math",
    kind="read",
    open_world=False,
    tags=["arithmetic", "math"],
    examples=[{"expression": "(3 + 4) * 2.5"}, {"expression": "sqrt(2) ** 2 + sin(pi / 2)"}],
    policy={
        "do": ["Use it for every calculation whose result matters."],
        "dont": ["Do not pass text, units or thousands separators: numbers, operators and functions only."],
    },
)
async def calculate(expression: Annotated[str, Field(min_length=1, max_length=_MAX_LENGTH)]) -> str:
    """Work out a sum or any arithmetic expression, exactly where integers allow it, else in double precision.

    Knows + - * / // % ** and brackets; abs, ceil, floor, round, min, max, gcd, sqrt, exp, log, log2, log10, hypot and
    the trigonometric functions in radians; pi, e, tau.

    Args:
        expression: What to calculate, such as "(3 + 4) * 2.5" or "sqrt(2)".
    """
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        detail = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deeply"
        raise ToolFailure("tool_error", f"this is no arithmetic expression: {detail}") from None
    try:
        return _shown(_value(tree.body))
    except ZeroDivisionError:
        raise ToolFailure("tool_error", "division by zero") from None
    except (OverflowError, RecursionError):
        raise ToolFailure("tool_error", "the result is too large, or the expression is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise ToolFailure("tool_error", f"this cannot be calculated: {error}") from None


def _value(node: ast.expr) -> _Number:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _bounded(value)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(_BINARY[type(op)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*map(_value, args)))
        case _:
            raise ToolFailure(
                "tool_error",
                f"{ast.unparse(node)!r} is not known here",
                hint=f"Functions: {', '.join(_FUNCTIONS)}. Constants: {', '.join(_CONSTANTS)}.",
            )


def _power(base: _Number, exponent: _Number) -> _Number:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > _MAX_BITS:
        raise OverflowError
    result: Any = base**exponent
    if isinstance(result, complex):
        raise ValueError("the root of a negative number is not real")
    return _bounded(result)


def _bounded(value: _Number) -> _Number:
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise OverflowError
    return value


def _shown(value: _Number) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
