"""Log of a collector: one line when it no longer takes something, and one when it takes it again.

The exporters of the SDK log each repetition of each request, in the loggers of their modules, which the exporters of a
program share: only what is logged while one of ours sends is kept back.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

_logger = logging.getLogger(__name__)

_REASON_PREFIX: Final = "Transient error "
_REASON_SUFFIX: Final = " encountered while"
"""What the SDK writes around the reason of a request that it repeats."""
_sending = threading.local()


def watch(exporter: Any, kind: str) -> None:
    """Log in place of `exporter`, which sends spans or metrics, when its collector goes and when it is back."""
    export, shutdown, is_taken = exporter.export, exporter.shutdown, True

    def run(*arguments: Any, **options: Any) -> Any:
        nonlocal is_taken
        result, reason = _wrap_quietly(exporter, export, *arguments, **options)
        was_taken, is_taken = is_taken, not reason
        if was_taken and reason:
            _logger.warning("the collector takes no %s: %s", kind, reason)
        elif not was_taken and not reason:
            _logger.warning("the collector takes %s again", kind)
        return result

    def end(*arguments: Any, **options: Any) -> None:
        _wrap_quietly(exporter, shutdown, *arguments, **options)

    exporter.export, exporter.shutdown = run, end


def refusal(exporter: Any) -> str:
    """Send a request without spans; return why the collector of the exporter does not take it, empty when it does."""
    return _wrap_quietly(exporter, exporter.export, ())[1]


def _wrap_quietly(exporter: Any, send: Any, *arguments: Any, **options: Any) -> tuple[Any, str]:
    """Send without a record of the SDK; return its result, and the reason of a failure, which its first record has."""
    logging.getLogger(type(exporter).__module__).addFilter(_keep_back)  # once, however often
    _sending.reasons = reasons = list[str]()
    try:
        result = send(*arguments, **options)
    finally:
        _sending.reasons = None
    is_failure = result is not None and result.name != "SUCCESS"  # None: of `shutdown`
    return result, next(iter(reasons), "no reason given") if is_failure else ""


def _keep_back(record: logging.LogRecord) -> bool:
    reasons: list[str] | None = getattr(_sending, "reasons", None)
    if reasons is None:
        return True
    reasons.append(record.getMessage().removeprefix(_REASON_PREFIX).partition(_REASON_SUFFIX)[0])
    return False
