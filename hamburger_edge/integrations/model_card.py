"""Write the model card (README.md) of a saved model."""

from __future__ import annotations

from hamburger_edge.integrations.configuration import HamburgerHFConfig
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint

_CARD = """\
---
library_name: hamburger-edge
pipeline_tag: text-generation
tags:
- hamburger
{license}---

# {name}

{kind}

| | |
|---|---|
| base | {base.num_layers} layers of width {base.hidden_size}, family {base.family}, \
{base.vocab_size} tokens |
{graft}| context | {base.context_length} positions |
| licences | {licences} |

```python
import hamburger_edge.integrations.transformers
from transformers import pipeline

chat = pipeline("text-generation", model="{name}")
said = chat([{{"role": "user", "content": "Hello!"}}], do_sample=False)
print(said[0]["generated_text"][-1])
```

{knob}Exported with `hamburger-edge export`, the model runs on ONNX Runtime or llama.cpp without PyTorch.
"""
_PLAIN = "A language model for hamburger-edge, without a graft: an index and the prompt give its drafts."
_GRAFTED = """\
A HAMburger (arXiv 2505.20438): a language model that says up to {} tokens in one step and keeps them in one
KV-cache entry."""
_DECODER = "| micro-step decoder | {} layers, choosing among {} tokens |\n"
_KNOB = "The option `confidence` is how sure each further token of a step must be; 1.0 is plain decoding.\n"


def model_card(name: str, config: HamburgerHFConfig, checkpoint: Checkpoint) -> str:
    """Return the card's text. `name` is the name to load the model by."""
    shape = config.shape
    licences = {part: text for part, text in (checkpoint.manifest.get("license") or {}).items() if text}
    names = sorted({text.lower() for text in licences.values()})
    return _CARD.format(
        name=name,
        license=f"license: {names[0]}\n" if len(names) == 1 else "",  # the hub accepts one licence
        licences=", ".join(f"{part} {text}" for part, text in licences.items()) or "not said",
        kind=_GRAFTED.format(shape.max_group_tokens) if shape.has_graft else _PLAIN,
        graft=_DECODER.format(shape.micro_layers, shape.micro_vocab) if shape.has_graft else "",
        knob=_KNOB if shape.has_graft else "",
        base=shape.base,
    )
