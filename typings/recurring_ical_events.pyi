"""What is used of `recurring_ical_events`, which has no types."""

from typing import Any

def of(a_calendar: Any) -> Any: ...
