"""THE list: the strategies under the names that profiles write. Adding one is one file or folder, and one line here."""

# pyright: reportUnusedImport=false
# ruff: noqa: F401

from .adaptive import STRATEGY as adaptive
from .flat import STRATEGY as flat
from .gateway import STRATEGY as gateway
from .introspection import STRATEGY as introspection
from .selection import STRATEGY as selection
from .tiered import STRATEGY as tiered
