import anyio

from toolcrib import Answer, Question, Toolcrib, run, tool


@tool(kind="destructive")
async def drop(table: str) -> str:
    """Drop a table."""
    return f"{table} is gone"


async def careful(question: Question) -> Answer:
    """Decide in code; a person would be shown `question.shown`, `.diff` and `.decision.rule`, the reason to ask."""
    if question.arguments["table"].startswith("test_"):
        return Answer(verdict="yes", by="careful")
    return Answer(verdict="comment", by="careful", comment="only tables of tests")


async def main() -> None:
    async with Toolcrib() as crib:
        crib.add(drop)
        session = crib.session(approver=careful)
        for table in ("test_users", "users"):
            result = await session.call("drop", {"table": table})
            print(result.error.message if result.error else result.text)

        async def no_person(question: Question) -> Answer:
            await anyio.sleep_forever()
            raise AssertionError

        async with anyio.create_task_group() as group:
            group.start_soon(crib.session(approver=no_person).call, "drop", {"table": "old"})
            async for asked in crib.approvals.watch():
                if asked.state == "pending":
                    await crib.approvals.decide(asked.id, Answer(verdict="no", by="Ada"), hash=asked.hash)
                    break
        for one in await crib.approvals.list():
            print(one.state, one.by, " ".join(one.arguments.split()))


run(main())
