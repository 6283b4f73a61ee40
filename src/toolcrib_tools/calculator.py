"""Exact arithmetic. The expression is parsed and walked; no part of it is evaluated as Python."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from functools import partial
from typing import Annotated, Any, Final

from pydantic import Field

from toolcrib.plugin import ToolFailure, tool

__all__ = ["add", "calculate", "divide", "multiply", "subtract"]

_Number = int | float

_MAX_BITS: Final = 4_096
"""Bits of an exact integer; larger ones could exhaust the machine (`9**9**9`)."""
_MAX_LENGTH: Final = 1_000
_EXACT: Final = Context(prec=5_000)
"""Enough for every sum, difference and product of two numbers of that size, or of double precision."""
_DIGITS: Final = 28
"""Decimal places of a quotient."""
_PLAIN: Final = 40
"""Digits of a number that are written without an exponent."""
_TAGS: Final = ["arithmetic", "math"]

_math_tool = partial(tool, category="math", kind="read", open_world=False)

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


@_math_tool(
    op="x.math.calculate",
    tags=_TAGS,
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
        raise ToolFailure("tool_error", f"this is not an arithmetic expression: {detail}") from None
    try:
        return _format_number(_value(tree.body))
    except ZeroDivisionError:
        raise ToolFailure("tool_error", "division by zero") from None
    except (OverflowError, RecursionError):
        raise ToolFailure("tool_error", "the result is too large, or the expression is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise ToolFailure("tool_error", f"this cannot be calculated: {error}") from None


@_math_tool(op="x.math.add", tags=[*_TAGS, "sum", "plus"], examples=[{"a": 0.1, "b": 0.2}])
async def add(a: _Number, b: _Number) -> str:
    """Add two numbers, exactly: 0.1 + 0.2 is 0.3.

    Args:
        a: The first number.
        b: The second number.
    """
    return _exactly(_EXACT.add, a, b)


@_math_tool(op="x.math.subtract", tags=[*_TAGS, "minus", "difference"], examples=[{"a": 1, "b": 0.9}])
async def subtract(a: _Number, b: _Number) -> str:
    """Subtract one number from another, exactly.

    Args:
        a: What is subtracted from.
        b: What is taken away.
    """
    return _exactly(_EXACT.subtract, a, b)


@_math_tool(op="x.math.multiply", tags=[*_TAGS, "product"], examples=[{"a": 1.1, "b": 3}])
async def multiply(a: _Number, b: _Number) -> str:
    """Multiply two numbers, exactly.

    Args:
        a: The first number.
        b: The second number.
    """
    return _exactly(_EXACT.multiply, a, b)


@_math_tool(op="x.math.divide", tags=[*_TAGS, "quotient", "ratio"], examples=[{"a": 1, "b": 8}])
async def divide(a: _Number, b: _Number) -> str:
    """Divide one number by another: exactly where the result has an end, else to 28 digits or more.

    Args:
        a: What is divided.
        b: What it is divided by; not 0.
    """
    if b == 0:
        raise ToolFailure("tool_error", "division by zero", hint="b: give another number than 0")
    return _exactly(lambda a, b: Context(prec=max(1, a.adjusted() - b.adjusted() + 1) + _DIGITS).divide(a, b), a, b)


def _exactly(work: Callable[[Decimal, Decimal], Decimal], a: _Number, b: _Number) -> str:
    """Return the result in decimals. A number of double precision stands for the shortest decimals that mean it."""
    for name, value in (("a", a), ("b", b)):
        if isinstance(value, float) and not math.isfinite(value):
            raise ToolFailure("invalid_arguments", f"{name}: {value} is not a number that can be calculated with")
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise ToolFailure("too_large", f"{name}: an integer of {value.bit_length():,} bits; {_MAX_BITS:,} at most")
    result = work(*(Decimal(value if isinstance(value, int) else repr(value)) for value in (a, b))).normalize(_EXACT)
    wide = abs(result.adjusted()) >= _PLAIN and not (
        isinstance(a, int) and isinstance(b, int) and result == int(result)
    )
    return str(result) if wide else f"{result:f}" if result else "0"


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


def _format_number(value: _Number) -> str:
    if isinstance(value, float) and not math.isfinite(value):  # 1e308 * 10: arithmetic of floats raises nothing here
        raise OverflowError
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
