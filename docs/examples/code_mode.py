from toolcrib import Toolcrib, ToolFailure, run, tool

prices = {"sail": 4200, "rope": 15, "anchor": 320}
ordered: list[str] = []


@tool(kind="read")
async def price(article: str) -> dict[str, int]:
    """Price of an article."""
    return {"price": prices[article]}


@tool(kind="write")
async def order(article: str) -> str:
    """Order an article."""
    if article == "anchor" and not ordered.count("rope"):
        raise ToolFailure("unavailable", "first the rope")
    ordered.append(article)
    return f"ordered {article}"


CHEAP = """
import asyncio
names = ["sail", "rope", "anchor"]
found = await asyncio.gather(*[price(article=name) for name in names])
[name for name, one in zip(names, found) if one["price"] < 1000]
"""


async def main() -> None:
    async with Toolcrib(builtins=["run_code"], memory=True) as crib:
        crib.add(price, order)
        session = crib.session(mode="autonomous")
        cheap = await session.call("run_code", {"code": CHEAP})
        print(cheap.text)
        broken = await session.call("run_code", {"code": "await order('sail')\nawait order('anchor')"})
        assert broken.error is not None
        resume = broken.error.details["resume"]
        code = "for article in ('sail', 'rope', 'anchor'):\n    print(await order(article))"
        result = await session.call("run_code", {"code": code, "resume": resume})
        print(result.text, end="")
        print(ordered)


run(main())
