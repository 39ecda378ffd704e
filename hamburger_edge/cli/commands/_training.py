"""What commands that train need before they begin."""

from __future__ import annotations

from hamburger_edge.errors import require


def require_training() -> None:
    """Of the extra `train`: what is lacking is said before hours of work, not after them."""
    for module in ("torch", "accelerate", "matplotlib"):
        require(module, "train")
