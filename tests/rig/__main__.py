"""Install what the suites need from npm: `python -m rig`, run in `tests`."""

from rig.node import ensure_npm

ensure_npm()
