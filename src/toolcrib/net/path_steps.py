"""Steps of a URL's path, as servers read them: what one takes for a name, another takes for `..`."""

from __future__ import annotations

__all__ = ["is_dots"]


def is_dots(decoded: str) -> bool:
    """Whether some server takes a decoded step of a path for `.` or `..`.

    Some end a name at a NUL, and those in Java leave out what follows a `;`.
    """
    return "".join(one for one in decoded.partition(";")[0] if one > " ") in (".", "..")
