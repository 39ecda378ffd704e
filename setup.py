"""List the packages; pyproject.toml holds all else.

`export/`, `models/` and `runtimes/` stand beside `hamburger_edge/` in the repository and are installed inside
it. The links in `hamburger_edge/` nest them for mypy and editors. Nothing is built from the links: a checkout
works without them.
"""

from setuptools import find_packages, setup

SISTERS = ("export", "models", "runtimes")
# For optimum, which imports every module that it has in this package.
COMMANDS = {"optimum.commands.register": "hamburger_edge/integrations/optimum_commands"}
# Used from a checkout only: the peers of `bench`. The built-in models are a distribution of their own.
CHECKOUT = ("benchmarks.peers*", "benchmarks.requests*", "zoo*")

core = find_packages("hamburger_edge", exclude=(*CHECKOUT, *SISTERS, *(f"{sister}.*" for sister in SISTERS)))
nested = [
    f"{sister}.{package}".removesuffix(".")
    for sister in SISTERS
    for package in ("", *find_packages(sister, exclude=CHECKOUT))
]
setup(
    packages=["hamburger_edge", *(f"hamburger_edge.{package}" for package in (*core, *nested)), *COMMANDS],
    package_dir={"hamburger_edge": "hamburger_edge"}
    | {f"hamburger_edge.{sister}": sister for sister in SISTERS}
    | COMMANDS,
)
