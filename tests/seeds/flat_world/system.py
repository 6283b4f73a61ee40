"""system: how busy this machine is."""

from __future__ import annotations

import os
import shutil

from toolcrib.sources.yaml.run_code import ToolContext

__all__ = ["system_monitor"]


def system_monitor(context: ToolContext, include_gpu: bool = False) -> str:
    load = os.getloadavg()[0]
    disk = shutil.disk_usage(context.call.cwd)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    lines = [
        f"load: {load:.2f} on {os.cpu_count()} processors",
        f"memory: {memory >> 20} MiB",
        f"disk: {disk.free >> 20} of {disk.total >> 20} MiB free",
    ]
    return "\n".join([*lines, "gpu: none found"] if include_gpu else lines)
