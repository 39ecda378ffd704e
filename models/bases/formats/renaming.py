"""All renamings of weights: other projects' tensor names -> ours.

Ours are Hugging Face's without the leading `model.`, as in `models/architecture/llama.py`. `{}` is a layer
number. None marks a known name that is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTPUT_NORMS = {
    "post_attention_norm": "attention_output_norm",
    "post_ffw_norm": "feed_forward_output_norm",
}

# llama.cpp -> ours; the export reads it in reverse.
GGUF: dict[str, str | None] = {
    "token_embd.weight": "embed_tokens.weight",
    "output_norm.weight": "norm.weight",
    "output.weight": "lm_head.weight",
    "rope_freqs.weight": None,  # read separately: configuration, not a weight
    **{
        f"blk.{{}}.{theirs}.weight": f"layers.{{}}.{ours}.weight"
        for theirs, ours in {**_LAYER, **_OUTPUT_NORMS}.items()
    },
    **{f"blk.{{}}.attn_{x}.bias": f"layers.{{}}.self_attn.{x}_proj.bias" for x in "qkv"},
}

# Hugging Face's LlamaForCausalLM and similar models -> ours.
HUGGING_FACE: dict[str, str | None] = {
    "lm_head.weight": "lm_head.weight",
    "model.layers.{}.self_attn.rotary_emb.inv_freq": None,  # a constant that old files stored
    "model.rotary_emb.inv_freq": None,
    **{
        f"model.{ours}": ours
        for ours in GGUF.values()
        if ours is not None and ours != "lm_head.weight" and "_output_norm." not in ours
    },
}

# Gemma 3 has four norms in a layer, and another use of one of the names.
_GEMMA_NORMS = {
    "post_attention_layernorm": "attention_output_norm",
    "pre_feedforward_layernorm": "post_attention_layernorm",
    "post_feedforward_layernorm": "feed_forward_output_norm",
}
GEMMA: dict[str, str | None] = {
    **HUGGING_FACE,
    **{
        f"model.layers.{{}}.{theirs}.weight": f"layers.{{}}.{ours}.weight"
        for theirs, ours in _GEMMA_NORMS.items()
    },
}

_LINEAR = ("weight", "bias")

# The paper authors' Lightning module -> ours (`models/architecture/hamburger.py`).
LIGHTNING: dict[str, str | None] = {
    **{f"model.{theirs}": ours and f"base.{ours}" for theirs, ours in HUGGING_FACE.items()},
    "comp_embedder.embedding.weight": None,  # the base's table, stored twice
    "comp_embedder.merger.pos": "embedder.places",
    **{f"comp_embedder.merger.q_proj.{w}": f"embedder.query.{w}" for w in _LINEAR},
    **{f"comp_embedder.merger.k_proj.{w}": f"embedder.key.{w}" for w in _LINEAR},
    **{f"comp_embedder.merger.v_proj.{w}": f"embedder.value.{w}" for w in _LINEAR},
    **{f"comp_embedder.out_proj.{w}": f"embedder.output.{w}" for w in _LINEAR},
    **{
        f"micro_step_decoder.decoders.{ours.removeprefix('layers.')}": f"micro.{ours}"
        for ours in HUGGING_FACE.values()
        if ours is not None and ours.startswith("layers.")
    },
    "micro_step_decoder.decoders.{}.self_attn.rotary_emb.inv_freq": None,
    **{f"micro_step_decoder.stop_head.{n}.{w}": f"stop_head.{n}.{w}" for n in (0, 2, 4) for w in _LINEAR},
}
LIGHTNING_UNUSED = "teacher."  # a distillation teacher that was saved too


def hugging_face_names(family: str) -> Mapping[str, str | None]:
    """Return the table of a config.json's model_type."""
    return GEMMA if family == "gemma3_text" else HUGGING_FACE


def norm_offset(family: str, ours: str) -> float:
    """Return what a file of this family leaves out of a weight: Gemma's norms multiply by 1 + w."""
    return 1.0 if family == "gemma3_text" and ours.endswith("norm.weight") else 0.0


def rename(name: str, table: Mapping[str, str | None]) -> str | None:
    """Return our name of a tensor; None: not needed. Raise KeyError for an unknown name."""
    if name in table:
        return table[name]
    pattern, number = re.sub(r"(?<=\.)\d+(?=\.)", "{}", name, count=1), re.search(r"(?<=\.)\d+(?=\.)", name)
    ours = table[pattern]
    return None if ours is None or number is None else ours.format(number.group())


def rename_back(ours: str, table: Mapping[str, str | None]) -> str:
    """Return the name that a table gives to a tensor of ours. Raise KeyError if it has none."""
    name = rename(ours, {mine: theirs for theirs, mine in table.items() if mine is not None})
    assert name is not None  # the reversed table has no None
    return name
