"""Settings of the store: which places are databases, and how long calls stay in the record."""

from typing import Annotated, Final

from ..core.settings import Count, Duration, Section, at_least

_SCHEMES: Final = ("postgresql://", "postgres://")


class Retention(Section):
    """Limits of stored rows; 0 for both keeps everything."""

    replaced_whole = True

    keep: Annotated[Duration, at_least(86_400.0, "1d")] = 0.0
    """Time that a call is kept after its end; 0 keeps it for ever."""
    max_rows: Annotated[Count, at_least(1000, "1000 rows")] = 0
    """Rows that are kept, the record of the last drop included; 0 keeps all."""

    def __str__(self) -> str:
        """As the row of a drop names it."""
        limits = [f"keep {self.keep:g} s" if self.keep else "", f"max_rows {self.max_rows}" if self.max_rows else ""]
        return f"records: {', '.join(filter(None, limits))}"


def is_url(place: str) -> bool:
    """Whether `place` names a PostgreSQL database."""
    return place.startswith(_SCHEMES)
