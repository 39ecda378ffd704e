"""What the server is built on: no release whose own faults anybody can use from outside."""

from __future__ import annotations

import tomllib

from packaging.requirements import Requirement
from places import ROOT


def test_starlette_has_its_faults_mended() -> None:
    """0.49.0 and older: time by the square of a Range header. 1.0.0 and older: the path of a request out of its
    Host header. 1.3.0 and older: forms without limits."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(each) for each in project["optional-dependencies"]["serve"]]
    [starlette] = [each for each in wanted if each.name == "starlette"]
    assert not [
        version for version in ("0.46.0", "0.49.0", "1.0.0", "1.3.0") if version in starlette.specifier
    ]
