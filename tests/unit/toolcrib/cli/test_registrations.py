"""What instances registered, on the command line: looked at by `show`, let be called by `accept`."""

from typing import Any

import anyio
import pytest

from toolcrib import Toolcrib
from toolcrib.config import Directories, bare
from toolcrib.registration import Registrations
from unit.toolcrib.cli.conftest import User


def endpoint(name: str) -> dict[str, Any]:
    """A definition as somebody sends it over REST, with a credential in it."""
    how = {"url": "https://203.0.114.7/orders?key=key-0123456789", "headers": {"X-Key": "key-0123456789"}}
    return {"name": name, "description": "Find an order.", "kind": "read", "implementation": {"endpoint": how}}


async def registered(user: User, *names: str) -> None:
    """Register for the instance `shop`, to be kept and not accepted."""
    settings = bare().with_values(directories=Directories.of({"HOME": str(user.home)}))
    async with Toolcrib(settings) as crib:
        for name in names:
            await crib.slice(Registrations).register("shop", endpoint(name), persist=True, accept=False)


async def states(user: User) -> dict[str, str]:
    settings = bare().with_values(directories=Directories.of({"HOME": str(user.home)}))
    async with Toolcrib(settings) as crib:
        return {one.name: one.state for one in crib.slice(Registrations).of("shop")}


@pytest.mark.slow
def test_what_was_registered_waits_until_its_source_is_accepted_by_name(user: User) -> None:
    anyio.run(registered, user, "find_order", "count_orders")

    all_servers = user.types("accept")
    before = anyio.run(states, user)
    shown = user.types("accept", "--show", "rest@shop")
    accepted = user.types("accept", "rest@shop")
    again = user.types("accept", "rest@shop")

    assert "rest@shop has registrations that are not accepted" in all_servers.stderr
    assert before == {"find_order": "quarantined", "count_orders": "quarantined"}
    assert "203.0.114.7" in shown.stdout
    assert "key-0123456789" not in shown.stdout + accepted.stdout
    assert "rest@shop: find_order, count_orders" in accepted.stdout
    assert anyio.run(states, user) == {"find_order": "ready", "count_orders": "ready"}
    assert "rest@shop: nothing was withheld" in again.stdout


@pytest.mark.slow
def test_a_registered_tool_is_shown_by_its_source_and_name(user: User) -> None:
    anyio.run(registered, user, "find_order")

    shown = user.reads("show", "rest@shop/find_order")
    unknown = user.types("show", "rest@shop/nothing")

    assert (shown["name"], shown["source"], shown["state"]) == ("find_order", "rest@shop", "quarantined")
    assert "there is no tool 'rest@shop/nothing'" in unknown.stderr
