"""Memory of a process: what is freed is there for the next result (glibc), what is loaded is not collected again."""

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
_LOAD = """
import gc
from toolcrib.system.memory import without_collection
rest = gc.get_freeze_count()
with without_collection():
    loaded = [[] for _ in range(20_000)]
young = [one for generation in (0, 1) for one in gc.get_objects(generation)]
print(gc.isenabled(), len(young) < 20_000, gc.get_freeze_count() == rest)
"""


@pytest.mark.process
@pytest.mark.parametrize("before", ["", "import gc; gc.freeze()"], ids=["ordinary", "frozen"])
def test_what_is_loaded_is_old_unless_the_program_keeps_some_of_it_from_collections(before: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", before + _LOAD], check=True, capture_output=True, text=True, timeout=60
    )

    assert done.stdout.split() == ["True", str(not before), "True"]


@pytest.mark.process
def test_buffers_of_a_megabyte_are_used_again_without_new_pages_of_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", _WORK], check=True, capture_output=True, text=True, timeout=60)

    faults, page = map(int, done.stdout.split())
    assert faults < 1_000_000 / page, "of 20 rounds with five megabytes each"
