"""Imports: no circle, one direction between the folders of the project, and few packages."""

from __future__ import annotations

import ast
import tomllib

from helpers.module_imports import PROJECT, circles, imports, modules
from helpers.places import ROOT
from packaging.requirements import Requirement

GROUND = {"errors", "support"}
LOOP = {"loop", "loop.modes"}
CORE = {*GROUND, "calls", "structured", "drafts", *LOOP, "chat", "bundle"}
APP = {*CORE, "hamburger_edge", "assembling", "exporting", "loading", "model"}
RUNTIMES = {"runtimes.onnx", "runtimes.llamacpp", "runtimes.torch"}
BASES = {"models.bases", "models.bases.formats", "models.bases.sources"}
NETWORKS = {"models.architecture", *BASES, "models.checkpoints"}
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
    "structured": {*GROUND, "calls"},
    "drafts": GROUND,
    "loop": {*GROUND, "structured", "drafts"},
    "loop.modes": {*GROUND, "structured", "drafts", "loop"},
    "chat": {*GROUND, "calls", "structured", "drafts", *LOOP},
    "bundle": {*GROUND, "calls", "structured", "drafts", *LOOP, "chat"},
    "model": {*GROUND, "calls", "structured", *LOOP, "chat"},
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
    "models.bases.formats": {*GROUND, "chat", "models.architecture"},
    "models.bases.sources": {*GROUND, "chat", "models.bases.formats"},
    "models.bases": {*GROUND, "chat", "models.architecture", *BASES},
    "models.checkpoints": {*GROUND, "chat", "models.architecture", *BASES},
    "models.distillation": {*GROUND, "chat", *NETWORKS},
    "models.training.data": DISTILLING,
    "models.training.updates": {*GROUND, *NETWORKS, "models.training.data"},
    "models.training": {*DISTILLING, "models.training.data", "models.training.updates"},
    "models.zoo.home_commands.making": {"hamburger_edge"},
    "models.zoo.proofread.making": set(),
    "models.zoo.voice_commands.making": set(),
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
    "evaluation.likelihood": {*APP, *NETWORKS, "runtimes.torch", "evaluation"},
    "evaluation": {*APP, *NETWORKS, "models.distillation", "runtimes.torch", "evaluation.likelihood"},
    "benchmarks.speed": {*APP, *NETWORKS, "export", "benchmarks", "evaluation"},
    "benchmarks.requests": {*APP, "benchmarks", "benchmarks.speed", "evaluation"},
    "benchmarks.peers.serving": {*CORE, "benchmarks", "benchmarks.peers", "benchmarks.speed", "evaluation"},
    "tuning.data": {*APP, *TRAINING, "evaluation"},
    "tuning.judging": {*APP, *TRAINING, "evaluation", "tuning.data"},
    "tuning": {*APP, *TRAINING, "evaluation", "tuning.data", "tuning.judging"},
    "tuning.results": {*APP, *TRAINING, "evaluation", "tuning", "tuning.data", "tuning.judging"},
    "serve": {*APP, "models.checkpoints"},
    "integrations": {*APP, *NETWORKS, "runtimes.torch", "evaluation", "evaluation.likelihood"},
    "integrations.optimum_commands": {*GROUND, "cli.commands"},
    "integrations.pyinstaller_hooks": {"runtimes.onnx"},
    "cli": {*APP, "cli.commands"},
    "cli.commands": {
        *{
            "cli",
            *APP,
            *TRAINING,
            "tuning",
            "tuning.data",
            "tuning.results",
            "serve",
            "export",
            "export.parity",
            "runtimes.torch",
        },
        *{"evaluation", "evaluation.likelihood", "benchmarks", *PEERS},
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


# The modules that an app embeds, and the command line.
CORE_ROOMS = {*APP, "cli", "cli.commands", "__main__"}


def part_of(module: str) -> str:
    room = room_of(module)
    return "core" if room in CORE_ROOMS else room.split(".")[0]


def test_imports_have_no_circle() -> None:
    assert not circles()


def test_folder_imports_its_allowed_folders_only() -> None:
    assert {room_of(module) for module in modules()} == DIRECTION.keys()
    for module in modules():
        room = room_of(module)
        beyond = {other for other in imports(module) if room_of(other) not in {room, *DIRECTION[room]}}
        assert not beyond, f"{module} imports {beyond}"


def test_core_imports_other_folders_inside_functions_only() -> None:
    """Models, except the scripts of a built-in model, use only leaves of the core."""
    for module in modules():
        if part_of(module) == "core":
            outward = {other for other in imports(module, top_level=True) if part_of(other) != "core"}
            assert not outward, f"{module} imports {outward} at its top"
        if part_of(module) == "models" and ".zoo." not in module:
            core = {other for other in imports(module) if part_of(other) != "models"}
            assert all(other.startswith(LEAVES) for other in core), f"{module} imports {core}"


# Attributes of a model, a conversation or a stream that only their own classes read.
PRIVATE = ("_engine", "_inference", "_turns")


def test_private_attributes_are_read_in_their_class_only() -> None:
    """Outside the core 16 places read the private parts of `Model`; `Model.inference` is public."""
    reads = {
        f"{module}: {ast.unparse(node)}"
        for module, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE and ast.unparse(node.value) != "self"
    }
    assert not reads


PROJECT_TABLE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_core_needs_three_packages() -> None:
    names = sorted(requirement.split(">")[0] for requirement in PROJECT_TABLE["dependencies"])
    assert names == ["numpy", "onnxruntime", "tokenizers"]


# A Range header takes quadratic time up to 0.49.0. The Host header can set the path of a request up to 1.0.0;
# a path without its slash can set the host up to 1.2.1.
FAULTY = ("0.46.0", "0.49.0", "1.0.0", "1.2.1")


def test_server_excludes_faulty_starlette_releases() -> None:
    wanted = [Requirement(each) for each in PROJECT_TABLE["optional-dependencies"]["serve"]]
    [starlette] = [each for each in wanted if each.name == "starlette"]
    assert not [version for version in FAULTY if version in starlette.specifier]
