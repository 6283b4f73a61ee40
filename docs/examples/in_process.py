from typing import Any

from fastapi import FastAPI, HTTPException
from fastmcp import FastMCP

from toolcrib import Toolcrib, run

stock = {"tea": 2}
server: FastMCP[Any] = FastMCP("stock")
app = FastAPI(title="Shop")


@server.tool(annotations={"readOnlyHint": True})
def count(item: str) -> int:
    """Count what is left of an item."""
    return stock[item]


@app.post("/orders/{item}", operation_id="order")
def order(item: str, amount: int = 1) -> dict[str, int]:
    """Order an item."""
    if item not in stock:
        raise HTTPException(404, f"there is no {item}")
    stock[item] += amount
    return stock


async def main() -> None:
    async with Toolcrib(mode="autonomous") as crib:
        await crib.mount(server)
        await crib.load(app)
        for name in ("stock__count", "Shop__order"):
            print(name, crib.catalog.tools[name].kind)
        print((await crib.call("Shop__order", {"item": "tea", "amount": 5})).text)
        print((await crib.call("stock__count", {"item": "tea"})).text)
        print((await crib.call("Shop__order", {"item": "coffee"})).text)


run(main())
