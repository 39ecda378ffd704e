"""One object says how to export: the same options, defaults and checks for Python and the command line."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.toys.toy_checkpoints import edit_json, save
from helpers.toys.toy_models import toy_model

from hamburger_edge.cli import main as cli
from hamburger_edge.cli.commands.export import NAMES, OPTIONS
from hamburger_edge.cli.parser import build_parser
from hamburger_edge.errors import ConfigError, InputError
from hamburger_edge.export.options import CHOICES, FORMATS, PRESETS, ExportOptions, options_of
from hamburger_edge.exporting import export_checkpoint
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint

RESEARCH = {"block_size", "keep_head", "prefer", "gguf_precision"}  # of recipe files alone
FIELDS = {field.name for field in dataclasses.fields(ExportOptions)}


def test_the_command_line_has_every_option_and_no_default_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parsed = build_parser().parse_args(["export", "tiny", "-o", "bundle"])
    assert {name: getattr(parsed, name) for name in NAMES} == dict.fromkeys(NAMES)
    assert set(NAMES) == FIELDS - RESEARCH | {"recipe"}
    offered = {each.settings["dest"]: each.settings.get("choices") for each in OPTIONS}
    assert {name: offered[name] for name in offered if name in CHOICES} == {
        name: list(CHOICES[name]) for name in ("flavor", "kv_cache_dtype")
    }
    assert tuple(offered["precision"] or ()) == PRESETS
    assert tuple(offered["formats"] or ()) == FORMATS
    asked: list[ExportOptions] = []

    def take(checkpoint: str, output: str, *, progress: object, recipe: Path, **given: object) -> str:
        asked.append(options_of(given, recipe))
        return output

    monkeypatch.setattr("hamburger_edge.exporting.export_checkpoint", take)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('block_size = 32\nprecision = "int4"\n')
    line = "export tiny -o b --format onnx --format gguf --flavor portable --precision int8"
    line += f" --recipe {recipe} --kv-cache-dtype fp32 --cache-slots 99 --no-verify --force"
    assert cli.main(line.split()) == 0
    given = {"formats": ("onnx", "gguf"), "flavor": "portable", "precision": "int8", "kv_cache_dtype": "fp32"}
    given |= {"cache_slots": 99, "verify": False, "force": True}
    assert asked == [ExportOptions(**given, block_size=32)]
    described = inspect.getdoc(export_checkpoint)
    parameters = set(inspect.signature(export_checkpoint).parameters)
    assert all(f"    {name} " in described for name in parameters - {"checkpoint", "output", "progress"})
    assert parameters >= FIELDS - RESEARCH


def test_a_preset_and_a_recipe(tmp_path: Path) -> None:
    assert options_of({"precision": "int4-fast"}) == ExportOptions(prefer="speed")
    with pytest.raises(InputError, match=r"precision must be one of int4, int4-fast, .*, got 'q4_1'"):
        options_of({"precision": "q4_1", "formats": "gguf"})
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('formats = ["gguf"]\nprecision = "q4_1"\n')
    assert options_of({"force": True}, recipe) == ExportOptions(("gguf",), precision="q4_1", force=True)
    recipe.write_text("blocks = 3\n")
    with pytest.raises(ConfigError, match=r"recipe.toml: unknown key 'blocks' \(known: formats"):
        options_of({}, recipe)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"formats": []}, "formats must be"),
        ({"formats": "tflite"}, "formats must be 'onnx', 'gguf' or both, got tflite"),
        ({"precision": "q4_1"}, "precision must be one of fp32, fp16, int8, int4, got 'q4_1'"),
        ({"precision": "int3", "formats": "gguf"}, "precision must be one of f32, .* for GGUF, got 'int3'"),
        ({"keep_head": "q8_0"}, "keep_head must be one of fp32, fp16, int8, int4, got 'q8_0'"),
        ({"kv_cache_dtype": "f16"}, "kv_cache_dtype must be one of fp32, fp16, int8, got 'f16'"),
        ({"block_size": 48}, "block_size must be 16, 32, 64, 128 or 256, got 48"),
        ({"cache_slots": 128}, "cache_slots is for portable graphs"),
        ({"gguf_precision": "q8_0"}, "gguf_precision is for GGUF files"),
        ({"flavor": "strange"}, "flavor must be one of"),
        ({"kv_cache_dtype": "int8", "formats": ["gguf"]}, "kv_cache_dtype 'int8' is for fused graphs"),
        ({"kv_cache_dtype": "int8", "flavor": "portable"}, "for fused graphs"),
        ({"prefer": "size"}, "prefer must be one of accuracy, speed"),
        ({"prefer": "speed", "precision": "int8"}, "prefer 'speed' is for precision int4, not int8"),
        ({"prefer": "speed", "block_size": 64}, "leave block_size out"),
        ({"prefer": "speed", "flavor": "portable"}, "'speed' is for fused graphs"),
        ({"prefer": "speed", "precision": "q4_1", "formats": ["gguf"]}, "prefer are for graphs"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_before_anything_is_read(given: dict[str, object], message: str) -> None:
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


def test_without_a_precision_the_checkpoint_recommends_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkpoint = save(tmp_path / "checkpoint", toy_model())
    asked: list[tuple[str, str]] = []

    def take(checkpoint: object, output: Path, options: ExportOptions, **_: object) -> Path:
        asked.append((options.precision, options.prefer))
        return output

    monkeypatch.setattr("hamburger_edge.export.pipeline.export", take)
    export_checkpoint(checkpoint, tmp_path / "bundle")
    edit_json("hamburger.json", recommended_precision="int8")(checkpoint)
    export_checkpoint(checkpoint, tmp_path / "bundle")
    export_checkpoint(load_checkpoint(checkpoint), tmp_path / "bundle")
    export_checkpoint(checkpoint, tmp_path / "bundle", precision="int4-fast")
    assert asked == [("int4", "accuracy"), *[("int8", "accuracy")] * 2, ("int4", "speed")]
