import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from toolcrib import Toolcrib, UsageError, run
from toolcrib.registration import Registrations


class Shop(BaseHTTPRequestHandler):
    """The API of a shop."""

    def do_GET(self) -> None:
        """Answer with an order."""
        body = json.dumps({"order": self.path.rpartition("/")[2], "state": "sent"}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def find_order(origin: str) -> dict[str, object]:
    return {
        "name": "find_order",
        "description": "Find an order of the shop.",
        "kind": "read",
        "implementation": {"endpoint": {"url": f"{origin}/orders/{{id}}", "allow_private": True}},
    }


async def main(origin: str) -> None:
    async with Toolcrib() as crib:
        session = crib.session(instance="shop", mode="autonomous", profile="flat")
        registrations = crib.slice(Registrations)
        await registrations.register("shop", find_order(origin))
        result = await session.call("find_order", {"id": "17"})
        print(result.structured_content)
        elsewhere = await crib.session(instance="bakery", profile="flat").call("find_order", {"id": "17"})
        print(elsewhere.text)
        await registrations.register(
            "shop", {"name": "shop", "api": {"url": origin, "allow_private": True, "methods": ["GET"]}}
        )
        print([tool.name for tool in session.tools])
        try:
            await registrations.register(
                "shop", {"name": "inside", "implementation": {"endpoint": {"url": "http://127.1/"}}}
            )
        except UsageError as error:
            print(error)
        await registrations.unregister("shop", "find_order")
        print([tool.name for tool in session.tools])


server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
threading.Thread(target=server.serve_forever, daemon=True).start()
run(main(f"http://127.0.0.1:{server.server_port}"))
server.shutdown()
server.server_close()
