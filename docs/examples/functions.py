from toolcrib import Toolcrib, run, tool


@tool(kind="read", category="weather")
async def forecast(city: str, days: int = 3) -> str:
    """Weather forecast of a city.

    Args:
        city: Its name, in any language.
        days: How far to look ahead.
    """
    return f"{city}: sun for {days} days"


async def main() -> None:
    async with Toolcrib() as crib:
        crib.add(forecast)
        async with crib.session() as session:
            print([shown.name for shown in session.tools])
            result = await session.call("forecast", {"city": "Oslo"})
            print(result.text)
            wrong = await session.call("forcast", {"city": "Oslo"})
            print(wrong.text)


run(main())
