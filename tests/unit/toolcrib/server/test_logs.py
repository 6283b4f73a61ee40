"""The log of a serving process: whatever is logged, every line is one short object without secrets or controls."""

import json
import logging
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from toolcrib.server.logs import LineFormatter

NASTY = 'a\nb\x1b[2J\u202e\u0000\r{"level": "fake"}'


def record(message: str, *, error: BaseException | None = None) -> logging.LogRecord:
    failure = (type(error), error, None) if error else None
    return logging.LogRecord("toolcrib.test", logging.WARNING, __file__, 1, message, None, failure)


def test_a_record_is_one_line_of_json_with_controls_escaped() -> None:
    line = LineFormatter(str, plain=False).format(record(NASTY))

    told = json.loads(line)
    assert line.isprintable() and line.isascii()
    assert {name: told[name] for name in ("level", "logger", "message")} == {
        "level": "warning",
        "logger": "toolcrib.test",
        "message": NASTY,
    }


@pytest.mark.parametrize("text", ["x" * 100_000, "\x1b" * 50_000, "é" * 50_000])
def test_a_line_is_never_longer_than_the_cap(text: str) -> None:
    line = LineFormatter(str, plain=False).format(record(text, error=ValueError(text)))

    assert len(line.encode()) <= 8192
    assert json.loads(line)["message"].startswith(text[:10])


@pytest.mark.parametrize("plain", [True, False])
def test_secrets_are_taken_out_of_messages_and_traces(plain: bool) -> None:
    def clean(text: str) -> str:
        return text.replace("hunter2", "***")

    line = LineFormatter(clean, plain=plain).format(record("password hunter2", error=ValueError("hunter2")))

    assert "hunter2" not in line
    assert "***" in line


def test_a_terminal_gets_one_plain_line_that_moves_no_cursor() -> None:
    line = LineFormatter(str, plain=True).format(record(NASTY))

    assert line.startswith("warning: a\\nb\\x1b[2J\\u202e")
    assert line.isprintable()


@pytest.mark.process
def test_a_daemon_log_is_private_limited_and_followed_by_stray_prints(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    program = f"""
import logging, os
from toolcrib.server.logs import DaemonLog, log_to
log_to(DaemonLog({str(path)!r}), "info", str)
for number in range(400):
    logging.info("%d %s", number, "x" * 5000)
os.write(1, b"stray\\n")
os.write(2, b"and straight\\n")
"""
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    written = path.read_text()
    assert written.endswith("stray\nand straight\n")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["daemon.log", "daemon.log.1"]
    assert max(file.stat().st_size for file in tmp_path.iterdir()) <= 1024 * 1024 + 8192
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
