"""Two versions of one tool; one session follows, one pins, one still speaks the version before."""

import toolcrib
from toolcrib import Toolcrib, tool


@tool(name="forecast", version="2", kind="read", deprecated="it knows only one day", replaced_by="outlook")
def forecast(place: str) -> str:
    """Tell tomorrow's weather."""
    return f"{place}: sun"


@tool(name="outlook", version="1", kind="read")
def outlook_1(place: str) -> str:
    """Tell the weather of the next days."""
    return f"{place}: sun, rain"


@tool(
    name="outlook",
    version="2",
    kind="read",
    migrations={"0.9": {"rename": {"city": "place"}, "set": {"days": 2}, "drop": ["unit"]}},
)
def outlook_2(place: str, days: int) -> str:
    """Tell the weather of so many days."""
    return f"{place}: {days} days of sun"


async def main() -> None:
    async with Toolcrib() as crib:
        crib.add(forecast, outlook_1, outlook_2)
        follows, pins = crib.session(), crib.session(versions={"outlook": "1"})
        print((await follows.call("outlook", {"place": "Oslo", "days": 3})).text)
        print((await pins.call("outlook", {"place": "Oslo"})).text)
        speaks = crib.session(versions={"outlook": "0.9"})
        result = await speaks.call("outlook", {"city": "Oslo", "unit": "C"})
        print(result.text, result.meta["version"])
        print(crib.catalog["forecast"].summary)


if __name__ == "__main__":
    toolcrib.run(main())
