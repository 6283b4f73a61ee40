"""The picture of the README: the first minute with Toolcrib, typed into a real shell at a pseudo-terminal.

python docs/images/first_minute.py    writes first_minute.svg beside this file (extras `test-peers` and `tokens`)

The program types `TYPED` in the practice home of docs/tutorials/practice.py, keeps the screen after each step, and
draws the screens one after the other. Output is what the commands print; only the pauses are set. The whole text is
in the element `desc`, so that a test can compare it with that of a new recording.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape, unescape
from importlib import import_module
from pathlib import Path
from typing import Any, Final

__all__ = ["PICTURE", "TYPED", "Frame", "Recording", "comparable", "described", "drawn", "record"]

PICTURE: Final = Path(__file__).with_suffix(".svg")
PRACTICE: Final = Path(__file__).parents[1] / "tutorials" / "practice.py"
TYPED: Final[Sequence[tuple[str, str]]] = (
    ("toolcrib", "Fix it? [y/N]:"),
    ("y", ""),
    ('toolcrib find "book a room for a meeting"', ""),
    ("toolcrib call rooms__create_reservation name=Blue details=10:00/11:00", "[e]dit:"),
    ("y", ""),
    ("toolcrib disconnect --all", ""),
)
"""Each line with the question that ends its output; without one the next prompt of the shell does."""

_COLUMNS, _ROWS = 80, 34
_LINES: Final = 200
"""Lines of the whole session at most."""
_PATIENCE: Final = 60.0
_PROMPT: Final = "$ "
_CELL_WIDTH, _CELL_HEIGHT, _MARGIN, _FONT_SIZE = 8.4, 18, 14, 14
_READING_SECONDS: Final = 0.12
"""Time that a screen stands for each of its new lines, and at least `_SHORTEST`."""
_SHORTEST: Final = 1.2
_LONGEST: Final = 4.0
_COLOURS: Final[Mapping[str, str]] = {
    "default": "#d8dee9", "black": "#4c566a", "red": "#e0717c", "green": "#a3be8c", "brown": "#ebcb8b",
    "blue": "#81a1c1", "magenta": "#b48ead", "cyan": "#88c0d0", "white": "#eceff4",
}  # fmt: skip
_BACKGROUND: Final = "#20242d"


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One screen: its lines, each as runs of text in one colour, and the seconds that it stands."""

    lines: tuple[tuple[tuple[str, str, bool], ...], ...]
    seconds: float

    @property
    def text(self) -> str:
        """The lines without colours."""
        return "\n".join("".join(run for run, _, _ in line).rstrip() for line in self.lines).rstrip()


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The screens of a session, and everything that stood on them."""

    frames: Sequence[Frame]
    transcript: str


def record(program: Path) -> Recording:
    """Type `TYPED` into a shell in a practice home, where `toolcrib` starts `program`."""
    with tempfile.TemporaryDirectory(prefix="ada-", dir="/tmp") as folder:
        return _recorded(program, Path(folder))


def _recorded(program: Path, home: Path) -> Recording:
    subprocess.run([sys.executable, PRACTICE, home], check=True, stdout=subprocess.DEVNULL)
    own = home / "bin" / "toolcrib"
    own.parent.mkdir()
    own.symlink_to(program)
    env = {
        "HOME": str(home),
        "PATH": f"{own.parent}:/usr/local/bin:/usr/bin:/bin",
        "PS1": _PROMPT,
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "TOOLCRIB_COMMAND": str(own),
        "XDG_RUNTIME_DIR": str(home),
    }
    terminal = _Terminal(["bash", "--norc", "--noprofile", "-i"], env, home)
    try:
        terminal.wait_for("")
        frames = [terminal.frame(_SHORTEST)]
        for line, question in TYPED:
            time.sleep(1)  # a program discards what is typed before its question stands
            terminal.type(line)
            frames.append(terminal.frame(_SHORTEST / 2))
            before = frames[-1].text
            terminal.type("\r")
            terminal.wait_for(question)
            frame = terminal.frame(_SHORTEST)
            new = len(frame.text.splitlines()) - len(before.splitlines())
            seconds = min(_LONGEST, max(_SHORTEST, _READING_SECONDS * max(new, 8)))
            frames.append(Frame(lines=frame.lines, seconds=seconds))
        return Recording(frames=frames, transcript=terminal.transcript)
    finally:
        terminal.close()


class _Terminal:
    """A program at a pseudo-terminal, and the emulator that has its screen."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        pyte: Any = import_module("pyte")  # it has no types
        self._screen: Any = pyte.Screen(_COLUMNS, _ROWS)
        self._whole: Any = pyte.Screen(_COLUMNS, _LINES)
        self._streams: Any = [pyte.ByteStream(screen) for screen in (self._screen, self._whole)]
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(env), cwd=folder, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(theirs)

    @property
    def transcript(self) -> str:
        """Every line since the start."""
        return "\n".join(line.rstrip() for line in self._whole.display).rstrip()

    def type(self, keys: str) -> None:
        """Type, and read the echo."""
        os.write(self._ours, keys.encode())
        self._read(0.05)

    def wait_for(self, question: str) -> None:
        """Read until the last line ends with `question`, or is the shell's prompt where it is empty."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            while self._read(0.4):
                pass
            last = next((line.rstrip() for line in reversed(self._screen.display) if line.strip()), "")
            if last.endswith(question) if question else last == _PROMPT.strip():
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{question or 'no prompt'!r} did not come:\n{self.transcript}")

    def frame(self, seconds: float) -> Frame:
        """Return the screen as it is now."""
        return Frame(lines=tuple(tuple(self._runs(row)) for row in range(_ROWS)), seconds=seconds)

    def close(self) -> None:
        """End the shell and what it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._ours)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], seconds)
        part = os.read(self._ours, 65536) if ready else b""
        for stream in self._streams:
            stream.feed(part)
        return bool(part)

    def _runs(self, row: int) -> Iterator[tuple[str, str, bool]]:
        text, colour, bold = "", "default", False
        for column in range(_COLUMNS):
            cell = self._screen.buffer[row][column]
            if (cell.fg, cell.bold) != (colour, bold):
                if text:
                    yield text, colour, bold
                text, colour, bold = "", str(cell.fg), bool(cell.bold)
            text += cell.data
        if text.strip():
            yield text.rstrip(), colour, bold


def comparable(text: str) -> str:
    """Return a transcript without what differs between two recordings: folder, identifiers, processes, line breaks."""
    packed = re.sub(r"\s+", "", text)
    return re.sub(r"\(process\d+", "(process", re.sub(r"(/tmp/ada-|call_|approval_)\w+", r"\1", packed))


def drawn(recording: Recording) -> str:
    """Return the screens as an animated SVG; a viewer without animation shows the last one."""
    frames = recording.frames
    total = sum(frame.seconds for frame in frames)
    width, height = _COLUMNS * _CELL_WIDTH + 2 * _MARGIN, _ROWS * _CELL_HEIGHT + 2 * _MARGIN
    styles: list[str] = []
    groups: list[str] = []
    begin = 0.0
    for number, frame in enumerate(frames):
        start, end = (100 * begin / total, 100 * (begin + frame.seconds) / total)
        begin += frame.seconds
        steps = [(0, "hidden"), (start, "visible"), (end, "hidden")]
        keys = " ".join(f"{at:.2f}%{{visibility:{value}}}" for at, value in steps if at < 99.999 or value == "visible")
        styles.append(f"@keyframes f{number}{{{keys}}}#f{number}{{animation:f{number} {total:.1f}s step-end infinite}}")
        shown = "visible" if number == len(frames) - 1 else "hidden"
        groups.append(f'<g id="f{number}" visibility="{shown}">{"".join(_lines(frame))}</g>')
    motionless = "@media(prefers-reduced-motion:reduce){g{animation:none!important}}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="{_FONT_SIZE}">'
    )
    return "\n".join(
        [
            head,
            "<title>The first minute with Toolcrib, recorded in a terminal</title>",
            f"<desc>{escape(recording.transcript)}</desc>",
            f"<style>{''.join(styles)}{motionless}</style>",
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{_BACKGROUND}"/>',
            *groups,
            "</svg>\n",
        ]
    )


def described(picture: str) -> str:
    """Return the transcript that a drawn picture carries."""
    found = re.search(r"<desc>(.*?)</desc>", picture, re.DOTALL)
    return unescape(found[1]) if found else ""


def _lines(frame: Frame) -> Iterator[str]:
    for row, line in enumerate(frame.lines):
        column = 0
        for run, colour, bold in line:
            fill = _COLOURS.get(colour, f"#{colour}" if re.fullmatch("[0-9a-f]{6}", colour) else _COLOURS["default"])
            weight = ' font-weight="bold"' if bold else ""
            for part in re.finditer(r"\S+(?: \S+)*", run):  # wider gaps are left to the position of the next part
                x = _MARGIN + (column + part.start()) * _CELL_WIDTH
                y = _MARGIN + row * _CELL_HEIGHT + _FONT_SIZE
                length = len(part[0]) * _CELL_WIDTH
                yield (
                    f'<text x="{x:g}" y="{y:g}" fill="{fill}"{weight} textLength="{length:g}">{escape(part[0])}</text>'
                )
            column += len(run)


def _main() -> None:
    program = shutil.which("toolcrib", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        sys.exit("`toolcrib` is not installed beside this Python")
    recording = record(Path(program))
    PICTURE.write_text(drawn(recording), "utf-8")
    seconds = sum(frame.seconds for frame in recording.frames)
    print(f"{PICTURE}: {len(recording.frames)} screens, {seconds:.0f} s")


if __name__ == "__main__":
    _main()
