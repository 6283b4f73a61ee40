from toolcrib import Call, Toolcrib, ToolResult, run, tool


@tool(kind="read")
async def orders(customer: str, limit: int = 100) -> list[str]:
    """List the orders of a customer."""
    return [f"{customer} {number}" for number in range(1, limit + 1)]


def at_most_two(call: Call) -> Call | ToolResult:
    if call.arguments["customer"] == "internal":
        return ToolResult.failed("denied", "internal accounts have no orders")
    return call.evolve(arguments={**call.arguments, "limit": min(call.arguments["limit"], 2)})


async def with_notice(call: Call, result: ToolResult) -> ToolResult:
    notice = {"type": "text", "text": "Test data."}
    return result.evolve(content=(*result.content, notice))


async def main() -> None:
    async with Toolcrib(before=[at_most_two], after=[with_notice]) as crib, crib.session() as session:
        crib.add(orders)
        for customer in ("Ada", "internal"):
            print((await session.call("orders", {"customer": customer})).text)
        for row in await crib.store.calls.list():
            print(row.outcome, row.arguments)
        print(crib.explainer.why("orders", session).before)


run(main())
