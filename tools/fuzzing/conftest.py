from __future__ import annotations

from helpers.pytest_process import prepare, pytest_configure, pytest_runtest_logreport

__all__ = ("pytest_configure", "pytest_runtest_logreport")
prepare()
