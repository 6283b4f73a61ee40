"""`/metrics` for Prometheus: for every caller that may call tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..mcp.server.http_messages import Receive, Refusal, Send, send_body
from .request_checks import RequestLimits

__all__ = ["MetricsRoute"]

_PATH: Final = "/metrics"


class MetricsRoute:
    """Serves one page of text. Lives as long as the HTTP server."""

    def __init__(self, page: Callable[[], bytes], content_type: str, edge: RequestLimits) -> None:
        """`page` returns the metrics of the moment."""
        self._page = page
        self._content_type = content_type.encode()
        self._edge = edge

    def serves(self, path: str) -> bool:
        """Whether a path is the page."""
        return path == _PATH

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer any request."""
        try:
            self._edge.admit(scope["headers"])
            if scope["method"] != "GET":
                raise Refusal(405, "Method not allowed", headers=[(b"allow", b"GET")])
        except Refusal as refusal:
            body = f"{refusal.message}\n".encode()
            await send_body(send, body, b"text/plain", status=refusal.status, headers=refusal.headers)
        else:
            await send_body(send, self._page(), self._content_type)
