from office import FUNCTIONS

from toolcrib import Answer, Question, Toolcrib, run


async def ask(question: Question) -> Answer:
    print("asked:", question.tool.name, dict(question.arguments))
    return Answer(verdict="yes", by="Ada")


async def main() -> None:
    async with Toolcrib(rules={"allow": ["create_*"], "deny": ["delete_customer"]}) as crib:
        crib.add(FUNCTIONS)
        session = crib.session(approver=ask)
        for name, arguments in (
            ("create_meeting", {"text": "Budget, Monday at ten"}),
            ("change_meeting", {"number": 1, "text": "Budget, Tuesday at ten"}),
            ("delete_customer", {"number": 1}),
        ):
            result = await session.call(name, arguments)
            print(f"{name}: {result.text.splitlines()[0]}")
        for row in await crib.store.calls.list():
            print(row.tool, row.decision, row.outcome)


run(main())
