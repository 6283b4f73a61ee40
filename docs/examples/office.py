"""Two hundred functions of an office: five for each of forty kinds of records."""

from collections.abc import Callable

from toolcrib import tool

KINDS = """
    meeting room message contact ticket page customer invoice order article
    release alert contract delivery employee expense holiday interview job key
    laptop lead lesson licence machine newsletter offer parcel payment phone
    printer project quote refund report shift subscription supplier visit voucher
""".split()
RECORDS: dict[str, list[str]] = {kind: [] for kind in KINDS}


def functions(kind: str) -> list[Callable[..., object]]:
    """Return the five functions of one kind of records."""
    records = RECORDS[kind]

    @tool(name=f"list_{kind}s", kind="read", category=kind, description=f"List every {kind}.")
    def show() -> list[str]:
        return records

    @tool(name=f"find_{kind}", kind="read", category=kind, description=f"Find a {kind} by its words.")
    def find(words: str) -> list[str]:
        return [record for record in records if words.lower() in record.lower()]

    @tool(name=f"create_{kind}", kind="write", category=kind, description=f"Create a {kind}.")
    def create(text: str) -> str:
        records.append(text)
        return f"{kind} {len(records)}: {text}"

    @tool(name=f"change_{kind}", kind="write", category=kind, description=f"Change the text of a {kind}.")
    def change(number: int, text: str) -> str:
        records[number - 1] = text
        return f"{kind} {number}: {text}"

    @tool(name=f"delete_{kind}", kind="destructive", category=kind, description=f"Delete a {kind} for good.")
    def delete(number: int) -> str:
        return f"deleted: {records.pop(number - 1)}"

    return [show, find, create, change, delete]


FUNCTIONS = [function for kind in KINDS for function in functions(kind)]
