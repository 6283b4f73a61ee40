"""Hostile requests at the HTTP edge: every row of the harness as it is wanted."""

from __future__ import annotations

import json
import re
import shlex
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from faults.harness import Harness
from rig import PATIENCE, free_port, serving

STATUS = {
    "baseline initialize 2025-11-25": {200},
    "baseline tools/list 2026-07-28": {200},
    "Host: evil.example (DNS rebinding)": {403, 421},
    "Host: evil.example, modern": {403, 421},
    "Origin: http://evil.example": {403},
    "Origin: http://evil.example, modern": {403},
    "Origin: null": {403},
    "Origin: http://localhost.evil.example": {403},
    "Origin: http://127.0.0.1:PORT@evil.example": {403},
    "CSRF simple request: text/plain body, no Accept": set(range(400, 500)),
    "CSRF text/plain, modern": set(range(400, 500)),
    "CSRF form-encoded": set(range(400, 500)),
    "unknown session id": {404},
    "session id with CRLF-ish/long": set(range(400, 500)),
    "header/body version mismatch": {400},
    "Mcp-Method header lies": {400},
    "invalid JSON": {400},
    "invalid UTF-8": {400},
    "JSON nesting 100k deep": {400},
    "huge integer id (5000 digits)": {400},
    "NaN": {400},
    "batch of 1000": {400},
    "5 MiB body": {413},
    "200 MiB body": {413},
    "alive at the end": {200},
}
"""Row of the harness → statuses that are wanted."""

SMALL_SESSIONS = 300


@pytest.fixture(scope="module")
def _seen() -> dict[str, dict[str, Any]]:
    return {}


@pytest.fixture
def rows(harness: Harness, _seen: dict[str, dict[str, Any]]) -> Iterator[dict[str, dict[str, Any]]]:
    """What was got, by row: one gateway and one run for all tests of this module."""
    if not _seen:
        _seen.update(check(harness, sessions=2000 if harness.full_size else SMALL_SESSIONS))
    yield _seen


def check(harness: Harness, *, sessions: int) -> dict[str, dict[str, Any]]:
    config = harness.home / "none.json"
    config.write_text(json.dumps({"mcpServers": {}}))
    port = free_port()
    command = shlex.split(harness.gateway().format(config=config, port=port))
    with serving(command, port=port, log=harness.home / "gateway.log", env=harness.environment()) as gateway:
        found = harness.http_checks(port, gateway.pid, "--sessions", str(sessions))
        gateway.send_signal(signal.SIGTERM)
        started = time.monotonic()
        gateway.wait(PATIENCE)
    found["SIGTERM"] = {"got": {"s": time.monotonic() - started, "status": gateway.returncode}}
    harness.note("http_checks", "toolcrib", 0.0, json.dumps({name: row["got"] for name, row in found.items()}))
    return {name: row["got"] if isinstance(row["got"], dict) else {} for name, row in found.items()}


@pytest.mark.parametrize("row", STATUS)
def test_a_hostile_request_gets_the_status_that_is_wanted(rows: dict[str, dict[str, Any]], row: str) -> None:
    assert rows[row]["status"] in STATUS[row], rows[row]


def test_a_page_of_another_origin_is_never_told_that_it_may_call(rows: dict[str, dict[str, Any]]) -> None:
    assert "acao" not in rows["CORS preflight from evil origin"]


def test_session_ids_cannot_be_guessed(rows: dict[str, dict[str, Any]]) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{22,}", rows["session id shape"]["sid"]), "128 bits take 22 characters of base64"


def test_bodies_above_the_cap_cost_no_memory(rows: dict[str, dict[str, Any]]) -> None:
    before, after = rows["rss before 200 MiB body"], rows["rss after"]

    assert after["VmHWM"] - before["VmHWM"] <= 16
    chunked = rows["chunked body, 100 MiB, no length"]
    assert "413" in chunked["status"] or chunked["mib_sent"] < 100, chunked
    assert chunked["rss"]["VmHWM"] - before["VmHWM"] <= 16


def test_stalled_bodies_are_closed_and_keep_nobody_waiting(rows: dict[str, dict[str, Any]]) -> None:
    found = rows["200 stalled bodies (slowloris, 20 s)"]

    assert found["status"] == 200
    assert found["s"] <= 0.05 + 0.5
    assert found["stalled_body_closed_by_server_after_s"] <= 15 + 1


def test_abandoned_sessions_cost_little(rows: dict[str, dict[str, Any]]) -> None:
    found = next(row for name, row in rows.items() if "abandon" in name)

    assert found["opened"] > 0
    assert found["rss_after"]["VmRSS"] - found["rss_before"]["VmRSS"] <= 20


def test_the_gateway_ends_within_five_seconds_with_sessions_open(rows: dict[str, dict[str, Any]]) -> None:
    assert rows["SIGTERM"]["s"] <= 5
    assert rows["SIGTERM"]["status"] == 0
