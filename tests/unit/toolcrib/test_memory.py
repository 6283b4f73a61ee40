"""Memory of a process that serves, with glibc: what is freed is there for the next result."""

from __future__ import annotations

import subprocess
import sys

import pytest

_WORK = """
import resource
from toolcrib.system.memory import keep_freed_memory
keep_freed_memory()
def work():
    return [b"x" * (1_000_000 + number) for number in range(5)]
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, resource.getpagesize())
"""


@pytest.mark.process
def test_buffers_of_a_megabyte_are_used_again_without_new_pages_of_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", _WORK], check=True, capture_output=True, text=True, timeout=60)

    faults, page = map(int, done.stdout.split())
    assert faults < 1_000_000 / page, "of 20 rounds with five megabytes each"
