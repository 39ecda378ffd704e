"""The process that runs tests: its random examples, its core and its report of failures."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, Phase, settings

UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large]


def prepare() -> None:
    """Set threads, random examples and Ctrl-C of this process."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Measured costs of drafts would change how many calls an answer takes.
    os.environ["HAMBURGER_EDGE_DRAFT_COSTS"] = "bundle"
    _load_profile()
    # Background processes of a script ignore Ctrl-C, and the programs that tests start inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _load_profile() -> None:
    """Load the profile that HYPOTHESIS_PROFILE names; by default every run draws the same examples.

    `make fuzz` uses `explore`: new examples, and how to repeat a failure. A failure becomes an explicit
    example. `make mutation` uses `first`, which does not shrink failures.
    """
    settings.register_profile("fixed", derandomize=True, deadline=None, suppress_health_check=UNHURRIED)
    search = (Phase.explicit, Phase.generate)
    settings.register_profile("first", settings.get_profile("fixed"), phases=search)
    settings.register_profile("explore", deadline=None, suppress_health_check=UNHURRIED, print_blob=True)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print each failure at once, not after the last test."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        print(f"\n{report.nodeid} failed: {crash.message if crash else ''}"[:500], flush=True)


def pytest_configure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker or not getattr(config.option, "numprocesses", None):
        _take_one_core(int(worker.removeprefix("gw") or 0))


def _take_one_core(number: int) -> None:
    """Every process that tests has one core, whatever the machine has: as many threads, and the same sums.

    The one that starts the others keeps all, since they inherit its cores.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})
