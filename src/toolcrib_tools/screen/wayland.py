"""The screen of a Wayland desktop: a program or the portal takes the picture, and nobody is told of windows."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from toolcrib.plugin import ToolFailure

from .._extras import optional
from . import portal
from .window import EXTRA, Window

__all__ = ["PROGRAMS", "Wayland"]

_FILE: Final = "{file}"
PROGRAMS: Final[Mapping[str, Sequence[str]]] = {
    "grim": (_FILE,),
    "gnome-screenshot": ("-f", _FILE),
    "spectacle": ("-n", "-b", "-f", "-o", _FILE),
}
"""By name, their arguments: for the compositors of wlroots, for GNOME, for KDE."""
_SECONDS: Final = 30.0
_SAID: Final = 500
"""Characters of what a program says that fails."""


class Wayland:
    """The screen by the first of several ways that works."""

    def __init__(self, ways: Sequence[Callable[[], bytes]]) -> None:
        """Each way returns a picture as PNG, or raises `ToolFailure`."""
        self._ways = ways

    @classmethod
    def found(cls) -> Wayland | None:
        """Return the screen by the programs that are installed and the portal; None where there is neither."""
        programs = [partial(_by_program, path) for path in map(shutil.which, PROGRAMS) if path]
        ways = [*programs, *([portal.screenshot] if portal.is_there() else [])]
        return cls(ways) if ways else None

    @property
    def is_flat(self) -> bool:
        """There are no windows to look at."""
        return True

    def windows(self) -> Sequence[Window]:
        """Raise: the protocol does not tell."""
        raise ToolFailure(
            "unavailable",
            "a Wayland desktop tells nobody which windows it has",
            hint="look at the whole screen: leave app and window_title out",
        )

    def picture(self, window: Window | None = None) -> Any:
        """Return an image of the whole screen. Raises `ToolFailure` with what every way says."""
        if window is not None:
            self.windows()
        failures: list[ToolFailure] = []
        for way in self._ways:
            try:
                return _read(way())
            except ToolFailure as failure:
                failures.append(failure)
        raise ToolFailure(failures[-1].code, "; ".join(failure.message for failure in failures))


def _read(data: bytes) -> Any:
    try:
        image = optional("PIL.Image", EXTRA).open(io.BytesIO(data), formats=("PNG", "JPEG"))
        image.load()
    except OSError as error:
        raise ToolFailure("tool_error", f"the picture of the screen is broken: {error}") from None
    return image


def _by_program(program: str) -> bytes:
    """Have one of `PROGRAMS`, given by its path, write a picture."""
    name = Path(program).name
    with TemporaryDirectory(prefix="toolcrib-screen-") as folder:
        file = Path(folder) / "screen.png"
        words = [program, *(word.replace(_FILE, str(file)) for word in PROGRAMS[name])]
        try:
            ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise ToolFailure("timeout", f"{name} did not answer within {_SECONDS:.0f} s") from None
        except OSError as error:
            raise ToolFailure("tool_error", f"{name} cannot be run: {error.strerror}") from None
        if ended.returncode or not file.exists():
            said = (ended.stderr or ended.stdout).decode(errors="replace").strip()[:_SAID]
            raise ToolFailure("tool_error", f"{name} took no picture: {said or f'exit status {ended.returncode}'}")
        return file.read_bytes()
