"""The sandbox of this machine, for tests of what runs in it: where it cannot be had they are skipped, and say why."""

from __future__ import annotations

import os
from typing import Final

import pytest

from toolcrib.sandbox.open import find_sandbox

__all__ = ["WHY_NOT", "needs_sandbox"]

_, WHY_NOT = find_sandbox(os.environ)
"""Empty where there is one."""

needs_sandbox: Final = pytest.mark.skipif(bool(WHY_NOT), reason=f"no sandbox on this machine: {WHY_NOT}")
