"""The page that the browser comes back to takes the one answer that is ours, from a browser on this machine."""

from collections.abc import Mapping

import anyio
import pytest

from rig import PATIENCE
from toolcrib.errors import UsageError
from toolcrib.net.oauth.flow import Receiver, receiving


async def knock(port: int, request: str) -> str:
    """Send one request as it is; return what comes back."""
    answer = b""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(request.encode())
        await stream.send_eof()
        try:
            while True:
                answer += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return answer.decode()


def get(receiver: Receiver, target: str, host: str = "", method: str = "GET") -> str:
    return f"{method} {target} HTTP/1.1\r\nhost: {host or f'127.0.0.1:{receiver.port}'}\r\n\r\n"


async def test_strangers_are_turned_away_until_the_answer_comes_and_no_page_repeats_what_was_sent() -> None:
    found: list[Mapping[str, str]] = []
    async with receiving(0, exactly=False) as receiver:
        strange = [
            get(receiver, "/"),
            get(receiver, "/favicon.ico"),
            get(receiver, "/callback?state=ours", host="evil.example"),
            get(receiver, "/callback?state=ours", method="POST"),
            get(receiver, "/callback?state=ours&state=ours"),
            get(receiver, "/callback?state=<script>alert(1)</script>"),
            "nonsense\r\n\r\n",
            "GET /callback?state=ours HTTP/1.1",
        ]
        pages: list[str] = []

        async def listen() -> None:
            found.append(await receiver.answer(lambda given: given.get("state") == "ours"))

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                pages += [await knock(receiver.port, request) for request in strange]
                pages.append(await knock(receiver.port, get(receiver, "/callback?state=ours&code=c%20d")))

    *turned_away, last = pages
    assert found == [{"state": "ours", "code": "c d"}]
    assert [page.partition("\r\n")[0] for page in turned_away] == ["HTTP/1.1 404 Not Found"] * len(strange)
    assert last.startswith("HTTP/1.1 200 OK")
    assert [page for page in pages if "<script" in page or "ours" in page] == []
    assert "default-src 'none'" in last and "no-store" in last


async def test_a_port_that_was_named_is_listened_on_or_the_login_ends() -> None:
    async with receiving(0, exactly=False) as taken:
        async with receiving(taken.port, exactly=False) as other:
            assert other.port not in (0, taken.port)
        with pytest.raises(UsageError, match="`redirect_port`"):
            async with receiving(taken.port, exactly=True):
                pass
