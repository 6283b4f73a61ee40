"""Values of data libraries: pictures, arrays and tables, recognised by their methods; no library is imported.

picture   `_repr_png_` (Pillow, IPython) or `savefig` (Matplotlib)
array     `shape` and `tolist` (NumPy and its scalars, PyTorch, JAX) or `to_list` (a series of Polars)
table     `shape` and `to_json` (pandas, its series too) or `write_json` (Polars)
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from datetime import date
from typing import Any, Final, cast

from ..core.json import read_json

_MAX_CELLS: Final = 100_000
"""Numbers of an array, or cells of a table, that are written out. Of a larger one the result is its library's own
excerpt: the whole would be megabytes of text."""
_PHOTOGRAPH_FORMATS: Final = ("JPEG", "MPO")
_MAX_PNG_BYTES: Final = 3 * 1024 * 1024
"""Bytes of a picture above which it becomes a JPEG: model APIs take about 5 MB, in base64."""


def is_picture(value: Any) -> bool:
    """Whether `value` can draw itself. The drawing takes long for a large one."""
    kind = cast("type[Any]", type(value))
    return hasattr(kind, "_repr_png_") or hasattr(kind, "savefig")


def picture_or_none(value: Any) -> bytes | None:
    """Return a picture as PNG, a large one or one read from a JPEG as JPEG; None for other values, or if it fails."""
    if not is_picture(value):
        return None
    try:
        if hasattr(value, "_repr_png_"):
            drawn = None if getattr(value, "format", None) in _PHOTOGRAPH_FORMATS else value._repr_png_()
            if hasattr(value, "_repr_jpeg_") and (drawn is None or len(drawn) > _MAX_PNG_BYTES):
                drawn = value._repr_jpeg_() or drawn
            return drawn if isinstance(drawn, bytes) else None
        buffer = io.BytesIO()
        value.savefig(buffer, format="png")
        return buffer.getvalue()
    except Exception:  # noqa: BLE001 - foreign code: without a picture the value is shown as text
        return None


def plain_or_none(value: Any) -> Any:
    """Return an array or a table as lists and objects, or as text where it is large; None for any other value.

    Elements of an array are as its library holds them: a date is a date.
    """
    try:
        shape = cast("tuple[int, ...] | None", getattr(value, "shape", None))
        write = next((write for name, write in _CONVERSIONS.items() if hasattr(value, name)), None)
        if not isinstance(shape, tuple) or write is None:
            return None
        if math.prod(shape) > _MAX_CELLS:
            return f"{type(value).__name__} of shape {tuple(shape)}; an excerpt:\n{value}"
        return write(value)
    except Exception:  # noqa: BLE001 - foreign code: such a value is shown as its library writes it
        return str(value)


def without_missing_dates(value: Any) -> Any:
    """Return plain containers with None for pandas' `NaT`: it is a `datetime` that no writer of JSON can write."""
    if isinstance(value, Mapping):
        return {key: without_missing_dates(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [without_missing_dates(item) for item in cast("list[Any]", value)]
    return None if isinstance(value, date) and value != value else value


def _from_pandas(value: Any) -> Any:
    """Return a table as a list of records, a series as a list, or as an object if its rows have names."""
    has_names = type(value.index).__name__ != "RangeIndex"
    if hasattr(value, "columns"):
        value, orient = (value.reset_index() if has_names else value), "records"
    else:
        orient = "index" if has_names else "values"
    written: str = value.to_json(orient=orient, date_format="iso", double_precision=15)
    return read_json(written, limit=len(written))


def _from_polars(value: Any) -> Any:
    written: str = value.write_json()
    return read_json(written, limit=len(written))


def _from_array(value: Any) -> Any:
    if getattr(value.dtype, "kind", "") in "cmM":  # JSON has no complex numbers, and nanoseconds would be integers
        value = value.astype(str)
    return value.tolist()


def _from_series(value: Any) -> Any:
    return value.to_list()


_CONVERSIONS: Final = {
    "to_json": _from_pandas,
    "write_json": _from_polars,
    "tolist": _from_array,
    "to_list": _from_series,
}
"""Conversion by the first method that a value has."""
