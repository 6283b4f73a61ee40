"""Settings of jobs: their number, their duration and their attempts."""

from typing import Literal

from ..core.settings import Count, Flag, Number, Section, setting

Engine = Literal["auto", "process", "durable"]


class Retries(Section):
    """Attempts of a call that may be repeated and fails for a passing reason."""

    attempts: Count = setting(3, changed_by="tool")
    """Attempts altogether."""
    backoff: Number = setting(1.0, changed_by="tool")
    """Seconds before the second attempt; twice as long before each further one, at most a minute."""


class JobLimits(Section):
    """Limits on the number and the duration of jobs."""

    working: Count = 32
    """Jobs of one principal that work at the same time."""
    waiting: Count = 1000
    """Jobs of one principal that have not ended, those in the queue included."""
    seconds: Number = setting(3600.0, changed_by="tool")
    """Default duration limit of a job, for tools and callers that set none."""
    max_seconds: Number = 86_400.0
    """Time that no tool and no caller can extend a job beyond."""
    kept: Count = setting(1000, changed_by="tool")
    """Ended jobs that are kept, for each principal if durable (a sixteenth more at times); the oldest are forgotten."""
    age: Number = setting(86_400.0, changed_by="tool")
    """Seconds that an ended job is kept."""
    output: Count = setting(4000, changed_by="tool")
    """Characters of a job's output that are kept: its end."""
    engine: Engine = setting("auto", changed_by="tool")
    """Job engine: `process`, `durable`, or `auto`, which is durable where the store allows it."""
    work: Flag = setting(True, changed_by="tool")
    """Whether this process takes jobs from the queue. It accepts them in either case."""
    retries: Retries = Retries.model_construct()
