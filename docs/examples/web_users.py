from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from toolcrib import Answer, Session, Toolcrib, ToolResult, defer_approval, pending_approval, tool


@tool(kind="write")
def order(item: str) -> str:
    """Order an item."""
    return f"{item} is on its way"


def conversation(request: Request) -> Session:
    crib: Toolcrib = request.app.state.crib
    user = request.headers["x-user"]  # yours is the user of a login
    return crib.session(principal=user, key=request.path_params["chat"], approver=defer_approval)


def reply(result: ToolResult) -> Response:
    if asked := pending_approval(result):
        return JSONResponse({"may": asked.tool, "run_with": asked.arguments, "approval": asked.approval}, 202)
    return JSONResponse({"text": result.text}, 422 if result.is_error else 200)


async def call(request: Request) -> Response:
    return reply(await conversation(request).call("order", await request.json()))


async def approve(request: Request) -> Response:
    return reply(await conversation(request).resume(request.path_params["id"], Answer(verdict="yes")))


@asynccontextmanager
async def life(app: Starlette) -> AsyncGenerator[None]:
    async with Toolcrib(memory=True) as app.state.crib:  # `store="shop.db"` outlives the process
        app.state.crib.add(order)
        yield


ROUTES = [
    Route("/{chat}/call", call, methods=["POST"]),
    Route("/{chat}/approvals/{id}", approve, methods=["POST"]),
]

with TestClient(Starlette(routes=ROUTES, lifespan=life)) as client:
    asked = client.post("/1/call", json={"item": "tea"}, headers={"x-user": "ada"}).json()
    print(f"May {asked['may']} run with {' '.join(asked['run_with'].split())}?")
    for user in ("bob", "ada"):
        answer = client.post(f"/1/approvals/{asked['approval']}", headers={"x-user": user})
        print(user, answer.status_code, answer.json()["text"].partition(" '")[0])
