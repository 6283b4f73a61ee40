from toolcrib import Toolcrib, run, tool


@tool(kind="write", idempotent=True)
async def report(month: str) -> str:
    return f"the report of {month}"


async def accept() -> str:
    async with Toolcrib.open() as crib:  # jobs are kept beside the store, in the data directory
        crib.add(report)
        session = crib.session(mode="autonomous")
        told = await session.call("report", {"month": "May"}, background=True)
        return str(told.structured_content["task_id"])  # from here on the job outlives this process


async def look(task: str) -> None:
    async with Toolcrib.open() as crib:  # the next process, where the first one has gone
        crib.add(report)
        result = await crib.jobs.result(task, "local", seconds=30)
        job = await crib.jobs.get(task, "local")
        print(job.tool, job.status, result.text, sep=", ")


run(look(run(accept())))
