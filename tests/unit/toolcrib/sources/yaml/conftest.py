"""Catalogs load modules into this process; each test begins without those of the one before."""

import sys
from collections.abc import Generator

import pytest


@pytest.fixture(autouse=True)
def without_loaded_modules() -> Generator[None]:
    """Forget what a catalog loaded, and where it looked for it."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in [name for name in sys.modules if name not in modules and "tools" in name.split(".")[0]]:
        del sys.modules[name]
