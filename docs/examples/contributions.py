"""Weather for Toolcrib: `weather_tools.py` of a package, with all entry points of this page."""

import typer

from toolcrib.plugin import (
    CommandHost,
    ConsoleView,
    Context,
    RestResource,
    RestRoute,
    ServiceHost,
    ToolCaller,
    ToolFailure,
    ViewPage,
    ViewTable,
    tool,
)


@tool(kind="write", category="weather")
async def report_weather(place: str, degrees: int, context: Context) -> dict[str, str]:
    """Keep a report of the weather at a place."""
    if not place.strip():
        raise ToolFailure("invalid_arguments", "place is empty", hint="name the place")
    report = await context.records("weather").add({"place": place, "degrees": degrees})
    return {"id": report.id}


@tool(kind="read", category="weather")
async def list_weather(context: Context) -> dict[str, list[str]]:
    """List the reports."""
    found = await context.records("weather").list()
    return {"reports": [f"{one.value['place']}: {one.value['degrees']}" for one in found]}


def weather(context: typer.Context) -> None:
    """Print the reports of the weather."""
    host: CommandHost = context.obj

    async def reports(tools: ToolCaller) -> list[str]:
        return (await tools.call("list_weather", {}))["reports"]

    host.out("\n".join(host.run(reports, categories=["weather"])))


RESOURCE = RestResource(
    routes=(
        RestRoute(method="GET", path="/reports", tool="list_weather"),
        RestRoute(method="POST", path="/reports/{place}", tool="report_weather", status=201),
    )
)


async def follow(service: ServiceHost) -> None:
    """Report the weather at the start; another service would go on until it is cancelled."""
    await service.caller("local").call("report_weather", {"place": "Oslo", "degrees": 7})


async def show(tools: ToolCaller, path: str) -> ViewPage:
    """Return the only page."""
    rows = [[one] for one in (await tools.call("list_weather", {}))["reports"]]
    return ViewPage(title="Weather", blocks=[ViewTable(columns=("report",), rows=rows, empty="none yet")])


VIEW = ConsoleView(label="Weather", categories=("weather",), tool="list_weather", show=show)

if __name__ == "__main__":
    for route in RESOURCE.routes:
        print(f"{route.method} /v1/weather{route.path} calls {route.tool}")
