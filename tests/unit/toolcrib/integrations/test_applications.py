"""`crib.load` of an OpenAPI description that is data, and of an application of this process, called in memory."""

from typing import Any

import anyio
import pytest
from fastapi import FastAPI, Header, HTTPException
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from peers.api import api, described
from rig import eventually
from toolcrib import Toolcrib
from toolcrib.errors import ConfigError, UsageError


class Shop:
    """An application, and what happened in it."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.app = FastAPI(title="Tea shop")
        self.app.get("/stock/{item}", operation_id="count_stock", tags=["stock"])(self.count_stock)
        self.app.post("/orders", operation_id="order")(self.order)
        self.app.get("/hang", operation_id="hang")(self.hang)
        self.app.get("/break", operation_id="fail")(self.fail)
        self.app.get("/user", operation_id="who")(self.who)

    async def count_stock(self, item: str) -> int:
        if item != "tea":
            raise HTTPException(404, f"there is no {item}")
        return 2

    def order(self, item: str, amount: int = 1) -> dict[str, int]:
        return {item: amount}

    async def hang(self) -> None:
        self.happened.append("hanging")
        try:
            await anyio.sleep_forever()
        finally:
            self.happened.append("ended")

    def fail(self) -> None:
        raise OSError("no database")

    def who(self, authorization: str = Header("")) -> str:
        return authorization.replace("Bearer ", "user of ")


async def test_an_application_is_loaded_by_its_own_description_and_called_in_memory_as_code_of_this_process() -> None:
    async with Toolcrib(mode="autonomous") as crib:
        await crib.load(Shop().app)
        kinds = {name: tool.kind for name, tool in crib.catalog.tools.items()}
        ordered = await crib.call("Tea-shop__order", {"item": "tea", "amount": 3})
        wrong = await crib.call("Tea-shop__order", {"item": "tea", "amount": "much"})
        missing = await crib.call("Tea-shop__count_stock", {"item": "coffee"})
        broken = await crib.call("Tea-shop__fail")

    assert kinds == {
        "Tea-shop__order": "write",
        **dict.fromkeys(("Tea-shop__count_stock", "Tea-shop__hang", "Tea-shop__fail", "Tea-shop__who"), "read"),
    }
    assert (ordered.structured_content, ordered.meta["trust"]) == ({"tea": 3}, "reviewed")
    assert [result.error and result.error.code for result in (wrong, missing, broken)] == [
        "invalid_arguments",
        "tool_error",
        "tool_error",
    ]
    assert "there is no coffee" in missing.text and "500" in broken.text


async def test_a_call_that_is_late_is_cancelled_in_the_application() -> None:
    shop = Shop()
    async with Toolcrib() as crib:
        await crib.load(shop.app)
        result = await crib.call("Tea-shop__hang", timeout=0.1)
        await eventually(lambda: "ended" in shop.happened)

    assert result.error is not None and result.error.code == "timeout"


async def test_options_of_an_api_select_operations_and_send_credentials_to_an_application_too() -> None:
    shop = Shop()
    async with Toolcrib() as crib:
        await crib.load(shop.app, name="stock", include=["stock"], trusted=False)
        await crib.load(shop.app, name="who", include=["who"], auth={"type": "bearer", "token": "a-token-of-ada"})
        names = list(crib.catalog)
        counted = await crib.call("stock__count_stock", {"item": "tea"})
        user = await crib.call("who__who")

    assert names == ["stock__count_stock", "who__who"]
    assert counted.meta["trust"] == "untrusted"
    assert "user of ***" in user.text


async def test_an_application_without_a_description_of_its_own_is_given_one() -> None:
    async def count(request: Request) -> JSONResponse:
        return JSONResponse({"count": len(request.path_params["word"])})

    path = {
        "get": {
            "operationId": "count",
            "parameters": [{"name": "word", "in": "path", "required": True, "schema": {"type": "string"}}],
            "responses": {"200": {"description": "Done"}},
        }
    }
    async with Toolcrib() as crib:
        document = described({"/words/{word}": path})
        await crib.load(document, app=Starlette(routes=[Route("/words/{word}", count)]))
        result = await crib.call("Workshop__count", {"word": "seven"})

    assert result.structured_content == {"count": 5}


async def test_a_description_that_is_data_is_that_of_a_server_elsewhere_whose_answers_are_not_trusted() -> None:
    async with api() as far, Toolcrib() as crib:
        document = described({"/pets": {"get": {"operationId": "list_pets"}}}, servers=[{"url": far.origin}])
        await crib.load(document, name="far", allow_private=True)
        await crib.load(document)
        result = await crib.call("far__list_pets")
        refused = await crib.call("Workshop__list_pets")

    assert (len(far.received), result.meta["trust"]) == (1, "untrusted")
    assert refused.error is not None and refused.error.code == "denied"


@pytest.mark.parametrize("thing", [{}, {"mcpServers": {}}, 5, object()])
async def test_other_data_and_other_objects_are_refused_with_what_load_takes(thing: Any) -> None:
    async with Toolcrib() as crib:
        with pytest.raises(UsageError, match="load takes the path of a file, a URL, an OpenAPI description or an app"):
            await crib.load(thing)


async def test_an_option_that_no_api_has_is_refused_and_so_is_an_application_that_is_none() -> None:
    async with Toolcrib() as crib:
        with pytest.raises(ConfigError, match="did you mean 'base_url'"):
            await crib.load(Shop().app, bas_url="http://localhost")  # pyright: ignore[reportCallIssue]
        with pytest.raises(UsageError, match="app is an ASGI application, not str"):
            await crib.load(described({}), app="shop:app")
