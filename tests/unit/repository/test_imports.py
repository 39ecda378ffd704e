"""Who may import whom: no circle, one direction between the rooms of the project, and few packages."""

from __future__ import annotations

import ast
import tomllib

from helpers.module_imports import PROJECT, circles, imports, modules
from helpers.places import ROOT
from packaging.requirements import Requirement

GROUND = {"errors", "support"}
CORE = {*GROUND, "calls", "loop", "chat", "bundle"}
APP = {*CORE, "hamburger_edge", "assembling", "exporting", "loading", "model"}
RUNTIMES = {"runtimes.onnx", "runtimes.llamacpp", "runtimes.torch"}
NETWORKS = {"models.architecture", "models.bases", "models.checkpoints"}
DISTILLING = {*GROUND, "chat", *NETWORKS, "models.distillation"}
TRAINING = {*DISTILLING, "models.training", "models.training.data"}
WRITERS = {"export.assembly", "export.graphs", "export.quantization", "export.gguf", "export.parity"}
PEERS = {"benchmarks.peers", "benchmarks.peers.serving", "benchmarks.requests", "benchmarks.speed"}

# Room -> rooms that it may import, besides itself. A room is a folder; modules that lie beside the rooms of
# hamburger_edge/, where an app looks first, are each a room.
DIRECTION = {
    "errors": set(),
    "support": {"errors"},
    "calls": GROUND,
    "loop": {*GROUND, "calls"},
    "chat": {*GROUND, "calls", "loop"},
    "bundle": {*GROUND, "calls", "loop", "chat"},
    "model": {*GROUND, "calls", "loop", "chat"},
    "runtimes": set(),
    "runtimes.onnx": CORE,
    "runtimes.llamacpp": CORE,
    "runtimes.torch": {*CORE, *NETWORKS},
    "assembling": {*CORE, "models.checkpoints", "export.assembly"},
    "loading": {*CORE, "assembling", "model", "models.checkpoints", *RUNTIMES},
    "exporting": {*GROUND, "assembling", "export", "export.assembly", "models.checkpoints"},
    "hamburger_edge": {*CORE, "model", "loading", "exporting"},
    "models": set(),
    "models.architecture": GROUND,
    "models.bases": {*GROUND, "chat", "models.architecture"},
    "models.checkpoints": {*GROUND, "chat", "models.architecture", "models.bases"},
    "models.distillation": {*GROUND, "chat", *NETWORKS},
    "models.training.data": DISTILLING,
    "models.training.updates": {*GROUND, *NETWORKS, "models.training.data"},
    "models.training": {*DISTILLING, "models.training.data", "models.training.updates"},
    "models.zoo.home_commands.making": {"hamburger_edge"},
    "models.zoo.proofread.making": set(),
    "models.zoo.tiny": TRAINING,
    "export.quantization": {*CORE, *NETWORKS},
    "export.graphs": {*CORE, *NETWORKS, "export.quantization"},
    "export.gguf": {*CORE, *NETWORKS, "export.quantization"},
    "export.parity": {*CORE, *NETWORKS, "export.quantization", *RUNTIMES},
    "export.assembly": {*CORE, *NETWORKS, "export.quantization", "export.graphs"},
    "export": {*CORE, *NETWORKS, *WRITERS},
    "benchmarks": GROUND,
    "benchmarks.peers": {
        *{*APP, *NETWORKS, "benchmarks", "evaluation"},
        *{"export.gguf", "export.quantization", "runtimes.llamacpp"},
    },
    "evaluation": {*APP, *NETWORKS, "models.distillation", "runtimes.torch"},
    "benchmarks.speed": {*APP, *NETWORKS, "export", "benchmarks", "evaluation"},
    "benchmarks.requests": {*APP, "benchmarks", "benchmarks.speed", "evaluation"},
    "benchmarks.peers.serving": {*CORE, "benchmarks", "benchmarks.peers", "benchmarks.speed", "evaluation"},
    "tuning": {*APP, *TRAINING, "evaluation"},
    "serve": {*APP, "models.checkpoints"},
    "integrations": {*APP, *NETWORKS, "runtimes.torch", "evaluation"},
    "integrations.optimum_commands": {*GROUND, "cli.commands"},
    "integrations.pyinstaller_hooks": {"runtimes.onnx"},
    "cli": {*APP, "cli.commands"},
    "cli.commands": {
        *{"cli", *APP, *TRAINING, "tuning", "serve", "export", "export.parity", "runtimes.torch"},
        *{"evaluation", "benchmarks", *PEERS},
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


# What an app embeds, and the command line.
CORE_ROOMS = {*APP, "cli", "cli.commands", "__main__"}


def part_of(module: str) -> str:
    room = room_of(module)
    return "core" if room in CORE_ROOMS else room.split(".")[0]


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert not circles()


def test_a_room_imports_nothing_but_what_it_may() -> None:
    assert {room_of(module) for module in modules()} == DIRECTION.keys()
    for module in modules():
        room = room_of(module)
        beyond = {other for other in imports(module) if room_of(other) not in {room, *DIRECTION[room]}}
        assert not beyond, f"{module} imports {beyond}"


def test_core_reaches_outward_only_inside_functions() -> None:
    """And models, but for scripts beside a built-in model, use nothing but leaves of the core."""
    for module in modules():
        if part_of(module) == "core":
            outward = {other for other in imports(module, top_level=True) if part_of(other) != "core"}
            assert not outward, f"{module} imports {outward} at its top"
        if part_of(module) == "models" and ".zoo." not in module:
            core = {other for other in imports(module) if part_of(other) != "models"}
            assert all(other.startswith(LEAVES) for other in core), f"{module} imports {core}"


# Attributes of a model, a conversation or a stream that only their own classes read.
PRIVATE = ("_engine", "_inference", "_turns")


def test_private_attributes_are_read_by_their_own_class_only() -> None:
    """Outside the core 16 places read the private parts of `Model`; `Model.inference` is public."""
    reads = {
        f"{module}: {ast.unparse(node)}"
        for module, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE and ast.unparse(node.value) != "self"
    }
    assert not reads


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
