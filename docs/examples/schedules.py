from toolcrib import Context, Toolcrib, run


async def remind(text: str, minutes: float, ctx: Context) -> str:
    """Remind the user of something."""
    made, _ = await ctx.schedules.create(
        title="Reminder",
        trigger_type="interval",
        trigger_config={"interval_seconds": minutes * 60},
        action={"type": "send_message", "content": text},
    )
    return f"{made.trigger_config} {made.status}"


async def main() -> None:
    async with Toolcrib(mode="autonomous") as crib:
        crib.add(remind)
        session = crib.session()
        print((await session.call("remind", {"text": "Stand up.", "minutes": 30})).text)


run(main())
