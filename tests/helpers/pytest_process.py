"""How many random examples tests draw, and which."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large]


def load_profile() -> None:
    """Load the profile that HYPOTHESIS_PROFILE names; by default every run draws the same examples.

    `make fuzz` uses `explore`: new examples, and how to repeat a failure. What it finds becomes an explicit
    example. `make mutation` uses `first`, which does not shrink failures.
    """
    settings.register_profile("fixed", derandomize=True, deadline=None, suppress_health_check=UNHURRIED)
    search = (Phase.explicit, Phase.generate)
    settings.register_profile("first", settings.get_profile("fixed"), phases=search)
    settings.register_profile("explore", deadline=None, suppress_health_check=UNHURRIED, print_blob=True)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
