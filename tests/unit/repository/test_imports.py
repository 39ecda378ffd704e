"""Who may import whom: no circle, one direction between the rooms of the project, and few packages."""

from __future__ import annotations

import tomllib

import pytest
from module_imports import PROJECT, SISTERS, circles, imports, modules
from packaging.requirements import Requirement
from places import ROOT

GROUND = {"errors", "support"}
CORE = {*GROUND, "loop", "chat", "bundle"}
APP = {"hamburger_edge", "assembling", "exporting", "loading", "model"}
NETWORKS = {"models.architecture", "models.bases", "models.checkpoints"}
TRAINING = {"models.training", "models.training.data"}

# Room -> rooms that it may import, besides itself. A room is a folder; modules that lie beside the rooms of
# hamburger_edge/, where an app looks first, are each a room.
DIRECTION = {
    "errors": set(),
    "support": {"errors"},
    "loop": GROUND,
    "chat": {*GROUND, "loop"},
    "bundle": {*GROUND, "loop", "chat"},
    "model": {*GROUND, "loop", "chat"},
    "runtimes": set(),
    "runtimes.onnx": CORE,
    "runtimes.llamacpp": CORE,
    "runtimes.torch": {*CORE, *NETWORKS},
    "assembling": {*CORE, "models.checkpoints", "export.assembly"},
    "loading": {
        *{*CORE, "assembling", "model", "models.checkpoints"},
        *{"runtimes.onnx", "runtimes.llamacpp", "runtimes.torch"},
    },
    "exporting": {*GROUND, "assembling", "export", "export.assembly", "models.checkpoints"},
    "hamburger_edge": {*CORE, "model", "loading", "exporting"},
    "models": set(),
    "models.architecture": GROUND,
    "models.bases": {*GROUND, "chat", "models.architecture"},
    "models.checkpoints": {*GROUND, "chat", "models.architecture", "models.bases"},
    "models.distillation": {*GROUND, "chat", *NETWORKS},
    "models.training.data": {*GROUND, "chat", *NETWORKS, "models.distillation"},
    "models.training.updates": {*GROUND, *NETWORKS, "models.training.data"},
    "models.training": {
        *{*GROUND, "chat", *NETWORKS, "models.distillation"},
        *{"models.training.data", "models.training.updates"},
    },
    "models.zoo.proofread.making": {
        *{*GROUND, "hamburger_edge", *NETWORKS, "models.distillation"},
        *{*TRAINING, "models.training.updates"},
    },
    "models.zoo.tiny": {*GROUND, "chat", *NETWORKS, "models.distillation", *TRAINING},
    "export.quantization": {*CORE, *NETWORKS},
    "export.graphs": {*CORE, *NETWORKS, "export.quantization"},
    "export.gguf": {*CORE, *NETWORKS, "export.quantization"},
    "export.parity": {
        *{*CORE, *NETWORKS, "export.quantization"},
        *{"runtimes.onnx", "runtimes.llamacpp", "runtimes.torch"},
    },
    "export.assembly": {*CORE, *NETWORKS, "export.quantization", "export.graphs"},
    "export": {
        *{*CORE, *NETWORKS},
        *{"export.assembly", "export.graphs", "export.quantization", "export.gguf", "export.parity"},
    },
    "benchmarks": GROUND,
    "benchmarks.peers": {
        *{*CORE, *APP, *NETWORKS},
        *{"export.gguf", "export.quantization", "runtimes.llamacpp", "benchmarks", "evaluation"},
    },
    "evaluation": {*CORE, *APP, *NETWORKS, "models.distillation", "runtimes.torch"},
    "benchmarks.speed": {*CORE, *APP, *NETWORKS, "export", "benchmarks", "evaluation"},
    "benchmarks.requests": {*CORE, *APP, "benchmarks", "benchmarks.speed", "evaluation"},
    "benchmarks.peers.serving": {*CORE, "benchmarks", "benchmarks.peers", "benchmarks.speed", "evaluation"},
    "tuning": {*CORE, *APP, *NETWORKS, "models.distillation", *TRAINING, "evaluation"},
    "serve": {*CORE, *APP},
    "integrations": {*CORE, *APP, *NETWORKS, "runtimes.torch", "evaluation"},
    "integrations.optimum_commands": {*GROUND, "cli.commands"},
    "cli": {*CORE, *APP, "cli.commands"},
    "cli.commands": {
        "cli",
        *{*CORE, *APP, *NETWORKS, "models.distillation", *TRAINING},
        *{"tuning", "serve", "export", "export.parity", "runtimes.torch", "evaluation"},
        *{"benchmarks", "benchmarks.peers", "benchmarks.peers.serving"},
        *{"benchmarks.requests", "benchmarks.speed"},
    },
    "__main__": {"cli"},
}
# Of the core, what models may use.
LEAVES = ("hamburger_edge.errors", "hamburger_edge.support.", "hamburger_edge.chat.template")


def room_of(module: str) -> str:
    if module == PROJECT:
        return PROJECT
    folder = modules()[module].parent.relative_to(ROOT)
    if folder.parts[0] == PROJECT:
        folder = folder.relative_to(PROJECT)
    return ".".join(folder.parts) or module.removeprefix(f"{PROJECT}.")


def part_of(module: str) -> str:
    room = room_of(module).split(".")[0]
    return room if room in SISTERS else "core"


def of_part(part: str) -> list[str]:
    return [module for module in modules() if part_of(module) == part]


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert not circles()


def test_every_room_has_its_direction() -> None:
    assert {room_of(module) for module in modules()} == DIRECTION.keys()


@pytest.mark.parametrize("room", DIRECTION)
def test_a_room_imports_nothing_but_what_it_may(room: str) -> None:
    for module in (module for module in modules() if room_of(module) == room):
        beyond = {other for other in imports(module) if room_of(other) not in {room, *DIRECTION[room]}}
        assert not beyond, f"{module} imports {beyond}"


def test_core_reaches_outward_only_inside_functions() -> None:
    for module in of_part("core"):
        outward = {m for m in imports(module, top_level=True) if part_of(m) != "core"}
        assert not outward, f"{module} imports {outward} at its top"
        if room_of(module) not in ("cli.commands", "assembling", "loading", "exporting"):
            outward = {m for m in imports(module) if part_of(m) != "core"}
            assert not outward, f"{module} imports {outward}"


def test_models_use_nothing_but_leaves_of_the_core() -> None:
    """But for scripts beside a built-in model, which ask it as any application does."""
    for module in (each for each in of_part("models") if ".zoo." not in each):
        for other in imports(module):
            assert part_of(other) == "models" or other.startswith(LEAVES), f"{module} imports {other}"


def test_every_part_has_modules_to_check() -> None:
    assert all(len(of_part(part)) >= 3 for part in ("core", *SISTERS))


PROJECT_TABLE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_core_needs_three_packages() -> None:
    names = sorted(requirement.split(">")[0] for requirement in PROJECT_TABLE["dependencies"])
    assert names == ["numpy", "onnxruntime", "tokenizers"]


# A Range header takes quadratic time up to 0.49.0; the Host header can set the path of a request up to 1.0.0;
# a path without its slash can set the host up to 1.2.1.
FAULTY = ("0.46.0", "0.49.0", "1.0.0", "1.2.1")


def test_the_server_admits_no_faulty_starlette() -> None:
    wanted = [Requirement(each) for each in PROJECT_TABLE["optional-dependencies"]["serve"]]
    [starlette] = [each for each in wanted if each.name == "starlette"]
    assert not [version for version in FAULTY if version in starlette.specifier]
