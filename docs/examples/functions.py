from toolcrib import Toolcrib, run, tool


@tool(kind="read")
async def forecast(city: str, days: int = 3) -> str:
    """Weather forecast of a city."""
    return f"{city}: sun for {days} days"


async def main() -> None:
    async with Toolcrib() as crib, crib.session() as session:
        crib.add(forecast)
        request = session.definitions("anthropic")  # the tools of a request, in the form of the model's API
        result = await session.call("forecast", {"city": "Oslo"})  # what the model asks for
        print([one["name"] for one in request], result.text)


run(main())
