"""Settings of telemetry: our own keys, and the one variable of OpenTelemetry that its SDK does not read itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..telemetry.sdk import TelemetryOptions

__all__ = ["telemetry_options"]

_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ON_SPANS: Final = ("true", "1", "span_only", "span_and_event")
"""Its values that ask for content on spans; `event_only` does not."""


def telemetry_options(options: TelemetryOptions | None, environ: Mapping[str, str]) -> TelemetryOptions:
    """Return the options of the files; if they do not set `content`, the environment decides."""
    content: bool = environ.get(_CAPTURE, "").strip().lower() in _ON_SPANS
    return (options or TelemetryOptions.model_construct()).over(TelemetryOptions.model_construct(content=content))
