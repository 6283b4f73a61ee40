"""What several suites need to meet real software: Node and the npm packages, servers in processes of their own."""

from rig.node import NPM_HOME, ROOT, ensure_npm, node, node_env, npm_package_main
from rig.pipes import Hearing
from rig.process import free_port, full_disk, serving
from rig.wait import PATIENCE, eventually

__all__ = [
    "NPM_HOME",
    "PATIENCE",
    "ROOT",
    "Hearing",
    "ensure_npm",
    "eventually",
    "free_port",
    "full_disk",
    "node",
    "node_env",
    "npm_package_main",
    "serving",
]
