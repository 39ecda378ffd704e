"""The hook for PyInstaller, which finds this folder by the entry point `hook-dirs`."""

from __future__ import annotations

from pathlib import Path


def hook_folders() -> list[str]:
    return [str(Path(__file__).parent)]
