"""`system_monitor`: processor, memory and disk of this machine, and on request its graphics cards."""

from __future__ import annotations

import csv
import platform
import shutil
import subprocess
import time
from typing import Any, Final

import anyio

from toolcrib.plugin import Context, ToolFailure, tool

from .._extras import optional

__all__ = ["system_monitor"]

_MEASURED: Final = 0.2
"""Seconds that the load of the processor is measured over."""
_GPU_SECONDS: Final = 10
"""Time limit of the driver, which has to wake a sleeping card."""
_GPU_FIELDS: Final = ("name", "utilization.gpu", "memory.used", "memory.total", "temperature.gpu")
_GPU_FIGURES: Final = ("percent", "memory_used_mib", "memory_total_mib", "celsius")
_MIB: Final = 1 << 20


@tool(
    op="x.system.monitor",
    category="system",
    kind="read",
    open_world=False,
    idempotent=False,
    tags=["cpu", "ram", "free memory", "disk", "gpu", "load", "health"],
    examples=[{}, {"include_gpu": True}],
    policy={
        "do": ["Look before you start something large: a build, a test run, a model."],
        "edge_cases": ["The disk is that of the workspace. Of graphics cards only NVIDIA's are known (nvidia-smi)."],
    },
)
async def system_monitor(ctx: Context, include_gpu: bool = False) -> dict[str, Any]:
    """Tell how busy this machine is: processor, memory, swap, disk and uptime; sizes in MiB.

    Args:
        include_gpu: Also tell load, memory and temperature of the graphics cards.
    """
    folder = str(ctx.workspace.root) if ctx.workspace is not None else "/"
    report = await anyio.to_thread.run_sync(_measured, folder)
    if include_gpu:
        report["gpus"] = await _gpus()
    return report


def _measured(folder: str) -> dict[str, Any]:
    psutil = optional("psutil", "system")
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    disk = shutil.disk_usage(folder)
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "uptime_seconds": round(time.time() - psutil.boot_time()),
        "cpu": {
            "percent": psutil.cpu_percent(interval=_MEASURED),
            "cores": psutil.cpu_count(),
            "load": [round(load, 2) for load in psutil.getloadavg()],
        },
        "memory": {
            "total_mib": memory.total // _MIB,
            "available_mib": memory.available // _MIB,
            "percent": memory.percent,
        },
        "swap": {"total_mib": swap.total // _MIB, "used_mib": swap.used // _MIB},
        "disk": {"total_mib": disk.total // _MIB, "free_mib": disk.free // _MIB},
    }


async def _gpus() -> list[dict[str, Any]]:
    """Query the driver. Raises `ToolFailure`: `unavailable` without one, `tool_error` if it fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        hint = "call it without include_gpu for everything else"
        raise ToolFailure("unavailable", "there is no nvidia-smi here: graphics cards cannot be looked at", hint=hint)
    command = [program, f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        with anyio.fail_after(_GPU_SECONDS):
            ended = await anyio.run_process(command, stderr=subprocess.STDOUT, check=False)
    except TimeoutError:
        raise ToolFailure("timeout", f"nvidia-smi did not answer within {_GPU_SECONDS} s") from None
    except OSError as error:
        raise ToolFailure("tool_error", f"nvidia-smi cannot be run: {error.strerror}") from error
    output = ended.stdout.decode(errors="replace")
    if ended.returncode:
        raise ToolFailure("tool_error", f"nvidia-smi failed: {output.strip()[:500]}")
    rows = csv.reader(output.strip().splitlines(), skipinitialspace=True)
    return [{"name": name, **dict(zip(_GPU_FIGURES, map(_number, figures), strict=False))} for name, *figures in rows]


def _number(text: str) -> float | None:
    """Return a figure; None if the card does not say (`[N/A]`)."""
    try:
        return float(text)
    except ValueError:
        return None
