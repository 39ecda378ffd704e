"""Open the models to evaluate and the plain base that judges them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError, require
from hamburger_edge.evaluation.likelihood.base_judge import Judge
from hamburger_edge.loading import find_bundle, load
from hamburger_edge.model import Model
from hamburger_edge.support.values import whole_in


@dataclass(frozen=True)
class ModelFolder:
    """A folder and the runtime that opens it."""

    path: Path
    backend: str
    label: str

    def open(self, **options: Any) -> Model:
        return load(self.path, self.backend, **options)


def sources(paths: list[str], backend: str) -> list[ModelFolder]:
    """Return the models to open. Backend "all" lists a bundle once per runtime that it has files for."""
    folders: list[ModelFolder] = []
    names = [Path(path).absolute().name for path in paths]
    for path, name in zip(map(Path, paths), names, strict=True):
        if backend == "all":
            path = find_bundle(path)
        has = {"onnx": any(path.glob("*.onnx")), "llamacpp": any(path.glob("*.gguf"))}
        several = [runtime for runtime, there in has.items() if there] if backend == "all" else []
        label = name if names.count(name) == 1 else str(path)
        for runtime in several or ["auto" if backend == "all" else backend]:
            folders.append(ModelFolder(path, runtime, label))
    if len(set(folders)) < len(folders):
        twice = next(source for number, source in enumerate(folders) if source in folders[:number])
        raise InputError(f"{twice.path} is given twice: name each bundle once")
    return folders


def name_of(source: ModelFolder, model: Model) -> str:
    info = model.info
    return f"{source.label} ({info.backend} {info.precision})"


def own_base(model: Model, name: str) -> Judge:
    info = model.info
    text = (
        f"the base of {name}, run by {info.backend} at {info.precision}, one token a slot; what training the "
        "graft changed in it, if anything, is in it"
    )
    return Judge(model, name, text)


def reference_base(source: str, *, cache_slots: int | None = None, threads: int | None = None) -> Judge:
    """Return a checkpoint's base in float32 PyTorch, without the checkpoint's separate base update."""
    require("torch", "export")
    from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
    from hamburger_edge.models.checkpoints.delta import add_delta
    from hamburger_edge.models.checkpoints.manifest import DELTA
    from hamburger_edge.models.checkpoints.rows import load_rows
    from hamburger_edge.runtimes.torch.torch_backend import DEFAULT_CACHE_SLOTS, TorchBackend, use_threads

    use_threads(threads)
    if cache_slots is not None:
        whole_in("cache_slots", cache_slots, 1, 1 << 31)
    checkpoint = load_checkpoint(source)
    model = checkpoint.model
    name = f"{checkpoint.path.name} (plain base, torch fp32)"
    text = f"the base of {checkpoint.path.name} in float32 PyTorch, one token a slot, "
    if delta := checkpoint.file(DELTA):  # undo the update that the loader added
        change = load_rows(delta)
        negative = {name: rows if name.endswith(".lora_a") else -rows for name, rows in change.items()}
        add_delta(model.base.state_dict(), negative, delta)
        text += "without what training the graft changed in it"
    elif checkpoint.manifest["base"]["kind"] == "embedded":
        text += "as the checkpoint embeds it: what training the graft changed in it, if anything, is in it"
    else:
        text += "which training the graft did not change"
    limit = model.config.base.context_length
    backend = TorchBackend(model, cache_slots=min(cache_slots or DEFAULT_CACHE_SLOTS, limit))
    template = checkpoint.chat_template
    opened = Model(
        backend,
        Tokenizer(checkpoint.tokenizer),
        ChatTemplate.from_json(template) if template else ChatTemplate(),
    )
    return Judge(opened, name, text)
