"""`ExportOptions`: the same options, defaults and checks for Python and the command line."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.toys.toy_checkpoints import edit_json, save
from helpers.toys.toy_models import toy_model

from hamburger_edge.cli import main as cli
from hamburger_edge.cli.commands.export import NAMES, OPTIONS
from hamburger_edge.cli.parser import build_parser
from hamburger_edge.errors import InputError
from hamburger_edge.export.options import CHOICES, FORMATS, PRECISIONS, ExportOptions
from hamburger_edge.exporting import export_checkpoint
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint

FIELDS = {field.name for field in dataclasses.fields(ExportOptions)}


def test_command_line_has_every_option_and_no_default_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parsed = build_parser().parse_args(["export", "tiny", "-o", "bundle"])
    assert {name: getattr(parsed, name) for name in NAMES} == dict.fromkeys(NAMES)
    assert set(NAMES) == FIELDS
    offered = {option.settings["dest"]: option.settings.get("choices") for option in OPTIONS}
    assert {name: offered[name] for name in offered if name in CHOICES} == {
        name: list(CHOICES[name]) for name in ("flavor", "kv_cache_dtype")
    }
    assert tuple(offered["precision"] or ()) == PRECISIONS
    assert tuple(offered["formats"] or ()) == FORMATS
    exported: list[ExportOptions] = []

    def take(checkpoint: str, output: str, *, progress: object, **given: Any) -> str:
        exported.append(ExportOptions(**given))
        return output

    monkeypatch.setattr("hamburger_edge.exporting.export_checkpoint", take)
    line = "export tiny -o b --format onnx --format gguf --flavor portable --precision int8"
    line += " --gguf-precision q4_0 --kv-cache-dtype fp32 --cache-slots 99 --no-verify --force"
    assert cli.main(line.split()) == 0
    given = {"formats": ("onnx", "gguf"), "flavor": "portable", "precision": "int8", "kv_cache_dtype": "fp32"}
    given |= {"gguf_precision": "q4_0", "cache_slots": 99, "verify": False, "force": True}
    assert exported == [ExportOptions(**given)]
    described = inspect.getdoc(export_checkpoint)
    parameters = set(inspect.signature(export_checkpoint).parameters)
    assert all(f"    {name} " in described for name in parameters - {"checkpoint", "output", "progress"})
    assert parameters >= FIELDS


def test_gguf_files_have_the_type_nearest_to_the_precision() -> None:
    both = ("onnx", "gguf")
    assert ExportOptions(both, precision="int4-fast").gguf_type == "int4"
    assert ExportOptions(both, precision="int8", gguf_precision="q4_0").gguf_type == "q4_0"
    assert ExportOptions(("gguf",), precision="q4_1").gguf_type == "q4_1"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"formats": []}, "formats must be"),
        ({"formats": "tflite"}, "formats must be 'onnx', 'gguf' or both, got tflite"),
        ({"precision": "q4_1"}, "precision must be one of int4, int4-fast, int8, fp16, fp32, got 'q4_1'"),
        ({"precision": "int3", "formats": "gguf"}, "precision must be one of f32, .* for GGUF, got 'int3'"),
        ({"kv_cache_dtype": "f16"}, "kv_cache_dtype must be one of fp32, fp16, int8, got 'f16'"),
        ({"cache_slots": 128}, "cache_slots is for portable graphs"),
        ({"gguf_precision": "q8_0"}, "gguf_precision is for GGUF files"),
        ({"flavor": "strange"}, "flavor must be one of"),
        ({"kv_cache_dtype": "int8", "formats": ["gguf"]}, "kv_cache_dtype 'int8' is for fused graphs"),
        ({"kv_cache_dtype": "int8", "flavor": "portable"}, "for fused graphs"),
        ({"precision": "int4-fast", "flavor": "portable"}, "'int4-fast' is for fused graphs"),
        ({"precision": "int4-fast", "formats": ["gguf"]}, "'int4-fast' is for fused graphs"),
        ({"flavor": "portable", "formats": ["gguf"]}, "flavor is for graphs: add  --format onnx"),
    ],
    ids=str,
)
def test_contradicting_options_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ExportOptions(**given)  # type: ignore[arg-type]


def test_options_import_nothing_that_exporting_needs() -> None:
    code = "import sys, hamburger_edge, hamburger_edge.export.options; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "onnx", "onnx_ir", "gguf"} & set(printed.stdout.split())


def test_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['onnx_ir'] = None; import hamburger_edge as he; "
    code += "he.export_checkpoint('tiny', 'bundle', precision='fp32')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert re.search(r"MissingExtraError: .*onnx_ir.*\[export\]", ended.stderr)


def test_checkpoint_recommends_the_default_precision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checkpoint = save(tmp_path / "checkpoint", toy_model())
    exported: list[str] = []

    def take(checkpoint: object, output: Path, options: ExportOptions, **_: object) -> Path:
        exported.append(options.precision)
        return output

    monkeypatch.setattr("hamburger_edge.export.pipeline.export", take)
    export_checkpoint(checkpoint, tmp_path / "bundle")
    edit_json("hamburger.json", recommended_precision="int8")(checkpoint)
    export_checkpoint(checkpoint, tmp_path / "bundle")
    export_checkpoint(load_checkpoint(checkpoint), tmp_path / "bundle")
    export_checkpoint(checkpoint, tmp_path / "bundle", precision="int4-fast")
    assert exported == ["int4", "int8", "int8", "int4-fast"]
