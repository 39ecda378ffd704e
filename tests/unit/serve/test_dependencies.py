"""The server's dependencies admit no release with a known fault that a request can trigger."""

from __future__ import annotations

import tomllib

from packaging.requirements import Requirement
from places import ROOT

# A Range header takes quadratic time up to 0.49.0; the Host header can set the path of a request up to 1.0.0;
# a path without its slash can set the host up to 1.2.1.
FAULTY = ("0.46.0", "0.49.0", "1.0.0", "1.2.1")


def test_no_faulty_starlette_is_admitted() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(each) for each in project["optional-dependencies"]["serve"]]
    [starlette] = [each for each in wanted if each.name == "starlette"]
    assert not [version for version in FAULTY if version in starlette.specifier]
