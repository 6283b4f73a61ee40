"""Patterns of modules: compiled when they are first used, and like those of `re.compile` from then on."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from toolcrib.core.patterns import regex

_PROBE = """
import json, re, sys
compiled, compile_now = set(), re._compiler.compile
def compile(*arguments):
    frame = sys._getframe(1)
    while frame.f_globals["__name__"] in ("re", "toolcrib.core.patterns"):
        frame = frame.f_back
    compiled.add(frame.f_globals["__name__"])
    return compile_now(*arguments)
re._compiler.compile = compile
import toolcrib.crib.lifecycle
found = sorted(name for name in compiled if name.startswith("toolcrib"))
from toolcrib.core.patterns import regex
kind, wrong = type(regex("")), []
for module in [module for name, module in sys.modules.items() if name.startswith("toolcrib.")]:
    for name, value in vars(module).items():
        try:
            isinstance(value, kind) and value.groups
        except Exception as error:
            wrong.append(f"{module.__name__}.{name}: {error}")
print(json.dumps([found, wrong]))
"""


def test_a_pattern_does_what_a_compiled_one_does() -> None:
    text, pattern, now = "key = 1, KEY = 22", regex(r"(?P<name>key) = (\d+)", re.IGNORECASE), re.IGNORECASE
    same = re.compile(r"(?P<name>key) = (\d+)", now)

    assert (pattern.pattern, pattern.flags, pattern.groups, dict(pattern.groupindex)) == (
        same.pattern,
        same.flags,
        same.groups,
        dict(same.groupindex),
    )
    assert pattern.findall(text) == same.findall(text)
    assert pattern.sub(r"\2", text) == same.sub(r"\2", text)
    assert [match.span() for match in pattern.finditer(text)] == [match.span() for match in same.finditer(text)]
    assert (pattern.fullmatch(text), pattern.split(text)) == (None, same.split(text))
    assert [bool(found) for found in (pattern.match(text), pattern.search(text, 1))] == [True, True]
    assert regex(rb"\d").search(b"a1") is not None


def test_a_pattern_that_is_not_valid_raises_at_its_first_use() -> None:
    pattern = regex("(")

    with pytest.raises(re.error):
        pattern.match("")
    with pytest.raises(re.error):
        pattern.match("")


@pytest.mark.process
def test_the_import_of_all_parts_compiles_no_pattern_of_ours_and_all_are_valid() -> None:
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True, timeout=60)

    assert json.loads(done.stdout) == [[], []]
