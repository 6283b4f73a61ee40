from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolcrib import TelemetryOptions, Toolcrib, run, tool


@tool(kind="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(kind="write")
async def pay(amount: int) -> str:
    """Pay."""
    return "paid"


async def main() -> None:
    spans, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    async with Toolcrib(telemetry=TelemetryOptions(tracers=tracers, content=True)) as crib:
        crib.add(add)
        crib.add(pay)
        async with crib.session() as session:
            with tracers.get_tracer("agent").start_as_current_span("turn"):
                await session.call("add", {"a": 1, "b": 2})
                await session.call("pay", {"amount": 5})
    for span in spans.get_finished_spans():
        said = span.attributes or {}
        print(span.name, said.get("toolcrib.decision"), said.get("error.type"), said.get("gen_ai.tool.call.arguments"))


run(main())
