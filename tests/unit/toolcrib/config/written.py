"""Configurations that a test writes."""

from __future__ import annotations

from pathlib import Path

from toolcrib.config import Settings, load


def read(folder: Path, *texts: str, **environ: str) -> Settings:
    """Load the texts from `0.yaml`, `1.yaml` … in `folder`, each over those before it."""
    files = [folder / f"{number}.yaml" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return load(files, environ=environ, cwd=folder)
