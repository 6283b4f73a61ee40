"""Background work of a source."""

import asyncio

from toolcrib.system.tasks import Background


def test_a_callback_of_any_event_loop_may_spawn_work() -> None:
    async def main() -> str:
        background, done = Background(), asyncio.get_running_loop().create_future()

        async def work() -> None:
            done.set_result("done")

        await background.start()
        asyncio.get_running_loop().call_soon(background.spawn, work)
        found = await asyncio.wait_for(done, 10)
        await background.stop()
        return found

    assert asyncio.run(main()) == "done"
