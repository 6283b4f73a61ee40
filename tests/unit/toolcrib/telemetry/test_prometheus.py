"""`/metrics` of `toolcrib serve --http`, as Prometheus fetches it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rig import PATIENCE, Hearing
from toolcrib.crib import Toolcrib
from toolcrib.plugin import tool
from toolcrib.server.backend import CribBackend
from toolcrib.server.http import HttpOptions
from toolcrib.server.metrics import MetricsRoute, PrometheusMetrics
from toolcrib.telemetry.settings import TelemetryOptions
from unit.toolcrib.server.wire_client import serving

TOKEN = "plain-token-0001"


@tool(kind="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def samples(text: str, name: str) -> dict[str, float]:
    """The values of a metric by outcome."""
    found = {family.name: family for family in text_string_to_metric_families(text)}[name]
    return {one.labels["toolcrib_outcome"]: one.value for one in found.samples if one.name.endswith("_total")}


async def test_calls_are_counted_by_outcome_for_who_may_call_tools() -> None:
    metrics = PrometheusMetrics()
    telemetry = TelemetryOptions(readers=(metrics.reader,))
    async with (
        Toolcrib(telemetry=telemetry) as crib,
        serving(
            CribBackend(crib),
            HttpOptions(token=TOKEN),
            [lambda edge, _: MetricsRoute(metrics, edge)],
        ) as site,
    ):
        crib.add(add)
        session = crib.session()
        for arguments in ({"a": 1, "b": 2}, {"a": 3, "b": 4}, {}):
            await session.call("add", arguments)
        url = site.url.replace("/mcp", "/metrics")
        refused = await site.client.get(url)
        read = await site.client.get(url, headers={"authorization": f"Bearer {TOKEN}"})
        written = await site.client.post(url, headers={"authorization": f"Bearer {TOKEN}"})

    assert (refused.status_code, read.status_code, written.status_code) == (401, 200, 405)
    assert read.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert samples(read.text, "toolcrib_calls") == {"ok": 2.0, "invalid_arguments": 1.0}


async def test_a_source_that_is_down_is_seen_before_a_call_fails() -> None:
    metrics = PrometheusMetrics()
    servers = {"gone": {"url": "http://127.0.0.1:1/mcp"}}
    async with Toolcrib(telemetry=TelemetryOptions(readers=(metrics.reader,)), servers=servers) as crib:
        crib.add(add)
        families = text_string_to_metric_families(metrics.page().decode())
        (up,) = [family for family in families if family.name == "toolcrib_source_up"]

    assert {one.labels["toolcrib_source"]: one.value for one in up.samples} == {"python": 1.0, "gone": 0.0}


@pytest.mark.long
@pytest.mark.process
def test_a_key_of_the_configuration_serves_the_metrics(tmp_path: Path) -> None:
    (tmp_path / "toolcrib.yaml").write_text("store: ./store.db\nbuiltins: false\ntelemetry: {prometheus: true}\n")
    command = [Path(sys.executable).with_name("toolcrib"), "serve", "--http", "--port", "0", "-c", "toolcrib.yaml"]
    with subprocess.Popen(command, cwd=tmp_path, env={"HOME": str(tmp_path)}, stderr=subprocess.PIPE) as process:
        hearing = Hearing(process.stderr)
        line = next(line for line in iter(hearing.line, b"") if b"serves MCP at" in line)
        url = json.loads(line)["message"].split()[-1]
        answer = httpx2.get(url.replace("/mcp", "/metrics"), timeout=PATIENCE, trust_env=False)
        process.terminate()

    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
