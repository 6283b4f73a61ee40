from toolcrib import Toolcrib, run, tool


@tool(kind="read")
async def forecast(city: str, days: int = 3) -> str:
    """Weather forecast of a city."""
    return f"{city}: sun for {days} days"


async def main() -> None:
    async with Toolcrib() as crib, crib.session() as session:
        crib.add(forecast)
        print([tool.name for tool in session.tools])
        result = await session.call("forecast", {"city": "Oslo"})
        print(result.text)


run(main())
