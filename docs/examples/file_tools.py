from pathlib import Path

from toolcrib import Toolcrib, run
from toolcrib_tools import files, search

folder = Path("work")
folder.mkdir()
(folder / "shop.py").write_text("def price(item):\n    return 10\n\n\ndef tax(item):\n    return 2\n")


async def main() -> None:
    async with Toolcrib() as crib:
        crib.add(files, search)
        print([tool.name for tool in crib.session(profile="flat").tools])

        session = crib.session(profile="flat", mode="review", workspace=folder)
        print(len(session.tools))
        print((await session.call("read_file", {"path": "shop.py", "mode": "outline"})).text)
        edit = {"path": "shop.py", "search": "return  10", "replace": "return 12"}
        print((await session.call("edit_file", edit)).text)
        done = await session.call("edit_file", {**edit, "search": "return 10"})
        print(done.structured_content["diff"])
        print((await session.call("grep", {"pattern": "return \\d+"})).text)

        await session.call("undo_edit", {})
        print((await session.call("grep", {"pattern": "return 1", "output": "count"})).text)


run(main())
