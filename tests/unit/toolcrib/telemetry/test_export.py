"""`telemetry` in a configuration file sends spans and metrics to a collector, through OpenTelemetry's own SDK."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider

from toolcrib.config import load
from toolcrib.crib import Toolcrib
from toolcrib.errors import ConfigError
from toolcrib.plugin import tool
from toolcrib.telemetry.sdk import exporting
from toolcrib.telemetry.settings import TelemetryOptions
from unit.toolcrib.telemetry.collector import collecting


@tool(kind="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def configured(folder: Path, said: str) -> Toolcrib:
    """A crib of a file that says `said` under `telemetry`."""
    file = folder / "config.yaml"
    file.write_text(f"builtins: false\ntelemetry: {said}\n", encoding="utf-8")
    environ = {"HOME": str(folder), "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    return Toolcrib(load([file], environ=environ), memory=True)


async def test_what_is_told_reaches_the_collector_at_the_latest_when_the_crib_closes(tmp_path: Path) -> None:
    with collecting() as collector:
        async with configured(tmp_path, f"{{otlp: '{collector.url}', content: false}}") as crib:
            crib.add(add)
            await crib.session().call("add", {"a": 1, "b": 2})

    ((name, said),) = collector.spans
    assert (name, said["toolcrib.outcome"], "gen_ai.tool.call.arguments" in said) == ("execute_tool add", "ok", False)
    assert collector.services == {"toolcrib"}
    assert {"gen_ai.execute_tool.duration", "toolcrib.calls"} <= collector.instruments


async def test_the_file_names_the_service_and_the_environment_asks_for_content(tmp_path: Path) -> None:
    with collecting() as collector:
        async with configured(tmp_path, f"{{otlp: '{collector.url}/', service_name: crib-1}}") as crib:
            crib.add(add)
            await crib.session().call("add", {"a": 1, "b": 2})

    ((_, said),) = collector.spans
    assert (said["gen_ai.tool.call.arguments"], collector.services) == ('{"a":1,"b":2}', {"crib-1"})


def test_a_collector_of_the_environment_that_takes_grpc_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("telemetry: {otlp: true}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is grpc") as refused:
        load([file], environ={"HOME": str(tmp_path), "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"})

    assert refused.value.key == "telemetry.otlp"


async def test_true_takes_the_endpoint_and_the_headers_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=red")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "named-outside")
        async with configured(tmp_path, "{otlp: true}") as crib:
            crib.add(add)
            await crib.session().call("add", {"a": 1, "b": 2})

    assert [name for name, _ in collector.spans] == ["execute_tool add"]
    assert ({headers["x-team"] for headers in collector.headers}, collector.services) == ({"red"}, {"named-outside"})


@pytest.mark.slow
async def test_a_collector_that_is_not_there_costs_no_call_and_little_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with configured(tmp_path, "{otlp: 'http://127.0.0.1:9'}") as crib:
        crib.add(add)
        result = await crib.session().call("add", {"a": 1, "b": 2})

    assert result.text == "3"
    lines = sorted(message.partition(":")[0] for message in caplog.messages)
    assert lines == ["the collector takes no metrics", "the collector takes no spans"]


async def test_a_collector_that_goes_and_comes_back_is_one_line_each_whatever_the_program_exports_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with collecting() as collector:
        ours = exporting(TelemetryOptions(otlp=collector.url))
        assert ours is not None
        assert isinstance(ours.tracers, TracerProvider)
        for status in (200, 400, 400, 200, 200):
            collector.status = status
            ours.tracers.get_tracer("ours").start_span("one").end()
            ours.tracers.force_flush()
        collector.status = 400
        OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces").export(())
        collector.status = 200
        await ours.close()

    gone, back, theirs = caplog.messages
    assert gone.startswith("the collector takes no spans: ")
    assert "400" in gone
    assert (back, caplog.records[-1].name) == ("the collector takes spans again", OTLPSpanExporter.__module__)
    assert "400" in theirs


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("{otlp: 127.0.0.1:4318}", "telemetry.otlp"),
        ("{otlp: 4318}", "telemetry.otlp"),
        ("{content: perhaps}", "telemetry.content"),
        ("{endpoint: x}", "telemetry.endpoint"),
        ("[otlp]", "telemetry"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, said: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path, said)

    assert f"{tmp_path / 'config.yaml'}:2" in str(caught.value)
    assert key in str(caught.value)


@pytest.mark.long
@pytest.mark.process
def test_without_the_extra_it_says_what_to_install() -> None:
    code = """
import sys, asyncio
sys.modules["opentelemetry.exporter.otlp.proto.http.trace_exporter"] = None
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.errors import ConfigError
from toolcrib.telemetry.settings import TelemetryOptions

async def main():
    settings = bare().with_values(telemetry=TelemetryOptions(otlp="http://127.0.0.1:9"))
    try:
        async with Toolcrib(settings, memory=True): ...
    except ConfigError as error:
        print(error)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)

    assert "telemetry.otlp" in done.stdout
    assert "'toolcrib[otel]'" in done.stdout
