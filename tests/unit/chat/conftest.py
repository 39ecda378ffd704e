from __future__ import annotations

from pathlib import Path

import pytest
from session_files import OPTIONS, save_one

from hamburger_edge.model import Model


@pytest.fixture
def saved(model: Model, tmp_path: Path) -> Path:
    """A conversation of one turn."""
    return save_one(model, tmp_path / "s", **{**OPTIONS, "max_tokens": 6})
