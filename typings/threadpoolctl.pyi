"""What is used of `threadpoolctl`, which has no types."""

from types import TracebackType

class threadpool_limits:
    def __init__(self, limits: int, user_api: str) -> None: ...
    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
