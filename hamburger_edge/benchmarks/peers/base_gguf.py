"""A tuned base for llama.cpp, where our GGUF writer has no form for it: its own file, with new weights."""

from __future__ import annotations

from pathlib import Path

from hamburger_edge.errors import InputError
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.bases.formats.renaming import GGUF, rename_back
from hamburger_edge.models.bases.sources.fetch import base_folder
from hamburger_edge.models.bases.weights import shapes
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint

FAMILIES = ("gemma3",)  # their files store a weight as our layers have it


def own_gguf(checkpoint: Checkpoint) -> Path:
    """Return the GGUF file that a checkpoint's base was read from."""
    reference = checkpoint.manifest["base"]
    if reference.get("layers") or reference.get("cut_vocabulary"):
        raise InputError(
            f"{checkpoint.path}: drops layers or tokens of its base, which the base's GGUF file has: "
            "compare with another contender"
        )
    path = base_folder(reference["name"]) if reference["kind"] == "fetch" else Path(reference.get("path", ""))
    files = sorted(path.glob("*.gguf")) if path.is_dir() else [path]
    if len(files) != 1 or not files[0].is_file():
        raise InputError(
            f"{checkpoint.path}: llama.cpp needs the GGUF file of this base, and {path} has none"
        )
    return files[0]


def write_over(original: Path, model: Hamburger, path: Path) -> None:
    """Write the keys of `original` with the model's base in float32."""
    from gguf import GGUFReader, GGUFWriter

    reader, config = GGUFReader(original), model.config.base
    writer = GGUFWriter(path, config.family)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(field.name, field.contents(), field.types[0], inner)
    state = model.base.state_dict()
    for ours in shapes(model.base):
        writer.add_tensor(rename_back(ours, GGUF), state[ours].float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
