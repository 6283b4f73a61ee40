from toolcrib.mcp.client.connection import Breaker
from toolcrib.mcp.client.spec import McpLimits


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_failures_wait_longer_and_then_open_the_breaker_for_longer_and_longer() -> None:
    clock = Clock()
    breaker = Breaker(McpLimits(backoff=0.1), clock)
    waits = [breaker.failed() for _ in range(4)]

    assert all(0.05 * 2**n <= wait <= 0.15 * 2**n for n, wait in enumerate(waits))
    assert breaker.open_for == 0
    assert (breaker.failed(), breaker.open_for) == (10, 10)
    clock.now += 10
    assert (breaker.open_for, breaker.failed()) == (0, 20)
    assert [breaker.failed() for _ in range(6)] == [40, 80, 160, 300, 300, 300]
    assert (breaker.open_for, breaker.refuses_for) == (300, 10)


def test_failures_far_apart_do_not_open_it() -> None:
    clock = Clock()
    breaker = Breaker(McpLimits(), clock)
    for _ in range(20):
        breaker.failed()
        clock.now += 8

    assert breaker.open_for == 0


def test_success_forgets_everything() -> None:
    breaker = Breaker(McpLimits(), Clock())
    for _ in range(6):
        breaker.failed()
    breaker.succeeded()

    assert breaker.open_for == 0
    assert breaker.failed() <= 0.15
