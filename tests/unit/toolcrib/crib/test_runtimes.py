"""What a session keeps for its tools ends with the session, whoever forgets it, at the latest with the crib."""

from __future__ import annotations

import gc

from toolcrib import Context, Toolcrib, tool


class Shell:
    def __init__(self) -> None:
        self.is_open = True

    async def aclose(self) -> None:
        self.is_open = False


@tool(kind="read")
async def work(ctx: Context) -> str:
    """Open a shell, and keep it."""
    ctx.runtime.setdefault("shell", Shell())
    return "done"


async def shell_of(crib: Toolcrib, key: str) -> Shell:
    session = crib.session(key=key)
    await session.call("work")
    return session.state.runtime["shell"]


async def test_a_session_that_is_left_closes_what_it_keeps() -> None:
    async with Toolcrib() as crib:
        crib.add(work)
        async with crib.session(key="a") as session:
            await session.call("work")
            shell = session.state.runtime["shell"]
            assert shell.is_open
        assert not shell.is_open


async def test_what_a_forgotten_session_kept_is_closed_before_the_next_call_without_a_garbage_collection() -> None:
    async with Toolcrib() as crib:
        crib.add(work)
        gc.disable()
        try:
            shell = await shell_of(crib, "a")
            await crib.store.calls.list()  # what waits to be written down still knows its session
            other = await shell_of(crib, "b")
        finally:
            gc.enable()
        assert (shell.is_open, other is shell) == (False, False)


async def test_the_crib_closes_what_its_sessions_still_keep() -> None:
    async with Toolcrib() as crib:
        crib.add(work)
        session = crib.session()
        await session.call("work")
        shell = session.state.runtime["shell"]
    assert not shell.is_open
