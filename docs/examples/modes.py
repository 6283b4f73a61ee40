from pathlib import Path

from toolcrib import Answer, Question, Toolcrib, run
from toolcrib_tools import files, search

folder = Path("shop")
folder.mkdir()
(folder / "price.txt").write_text("10\n")


def price() -> str:
    return (folder / "price.txt").read_text().strip()


async def approver(question: Question) -> Answer:
    print("?", question.decision.rule)
    return Answer(verdict="yes")


async def main() -> None:
    async with Toolcrib() as crib:
        crib.add(files, search)

        session = crib.session(mode="audit", workspace=folder, task="prices")
        await session.call("write_file", {"path": "price.txt", "content": "12\n"})
        await session.call("write_file", {"path": "news.txt", "content": "New prices.\n"})
        print((await session.call("grep", {"pattern": "12|prices"})).text)
        print(price(), [one.path for one in await crib.changes.list()])
        print((await crib.changes.diff("price.txt")).splitlines()[-2:])
        print(await crib.changes.accept(owner="task prices"), price())

        session = crib.session(mode="plan", workspace=folder, approver=approver)
        print([tool.name for tool in session.tools])
        print((await session.call("remove_file", {"path": "news.txt"})).text.splitlines()[0])
        await session.approve_plan("1. Remove news.txt, which nobody reads.")
        done = await session.call("remove_file", {"path": "news.txt"})
        print(done.is_error, done.meta["rule"])


run(main())
