"""The shop behind an HTTP API on loopback, described as OpenAPI: its orders and products are records of the office."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from peers.api import described
from scenarios.office import Office

_KEY: Final = {"name": "number", "in": "path", "required": True, "schema": {"type": "string"}}
_NAME: Final = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_STATE: Final = {"name": "state", "in": "query", "schema": {"enum": ["unpaid", "paid", "shipped", "cancelled"]}}
_STOCK: Final = {"type": "object", "properties": {"stock": {"type": "integer"}}, "required": ["stock"]}
_MOVES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "ship": ("shipped", ("paid",)),
    "cancel": ("cancelled", ("paid", "unpaid")),
}
"""What may become of an order: the state it comes to, and those that it may be in before."""
_PRICE: Final = {"type": "object", "properties": {"price": {"type": "integer"}}, "required": ["price"]}


def _op(identity: str, summary: str, *parameters: Any, body: Any = None) -> dict[str, Any]:
    sent = {"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}} if body else {}
    return {"operationId": identity, "summary": summary, "tags": ["shop"], "parameters": list(parameters), **sent}


DESCRIPTION: Final = described(
    {
        "/orders": {"get": _op("list_orders", "List the orders of customers, or those in one state", _STATE)},
        "/orders/{number}": {"get": _op("get_order", "Show one order of a customer", _KEY)},
        "/orders/{number}/ship": {"post": _op("ship_order", "Ship an order that was paid", _KEY)},
        "/orders/{number}/cancel": {"post": _op("cancel_order", "Cancel an order that was not shipped yet", _KEY)},
        "/products": {"get": _op("list_products", "List the products of the shop with price and stock")},
        "/products/{name}": {"get": _op("get_product", "Show price and stock of one product", _NAME)},
        "/products/{name}/stock": {
            "put": _op("set_stock", "Set how many pieces of a product there are", _NAME, body=_STOCK)
        },
        "/products/{name}/price": {"put": _op("set_price", "Set the price of a product", _NAME, body=_PRICE)},
    }
)


def answering(office: Office) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers every request of the shop, out of the records that the office has at that time."""

    async def answer(request: Request) -> Response:
        kind, _, rest = request.url.path.strip("/").partition("/")
        key, _, action = rest.partition("/")
        there = office.records[kind]
        if not key:
            state = request.query_params.get("state")
            return JSONResponse(office.select(kind, lambda record: state in (None, record.get("state"))))
        if key not in there:
            return JSONResponse({"message": f"there is no {key}; there are {', '.join(there)}"}, 404)
        if action in _MOVES:
            to, since = _MOVES[action]
            if there[key]["state"] not in since:
                return JSONResponse({"message": f"order {key} is {there[key]['state']}"}, 409)
            there[key]["state"] = to
        elif action:
            there[key] |= await request.json()
        return JSONResponse({"id": key, **there[key]})

    return answer
