"""The commands and their options, as data: the parser, `--help` and docs/cli.md are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Option:
    """One argument of a command; the fields are argparse's."""

    flags: tuple[str, ...]
    settings: Mapping[str, Any]


def option(*flags: str, **settings: Any) -> Option:
    return Option(flags, settings)


@dataclass(frozen=True)
class Command:
    name: str
    summary: str
    options: tuple[Option, ...]
    examples: tuple[str, ...]
    notes: str = field(default="")


_JSON = option("--json", action="store_true", help="print one JSON object instead of text")
_BUNDLE = option("bundle", metavar="BUNDLE", help="folder made by `export`, or a checkpoint (PyTorch)")
_RUNTIME = (
    option("--backend", default="auto", choices=["auto", "onnx", "llamacpp", "torch"], help="runtime to use"),
    option("--provider", metavar="NAME", help="onnx: what computes, cpu, cuda, coreml or auto (default cpu)"),
    option("--threads", type=int, metavar="N", help="processor threads (default: one for each core)"),
    option(
        "--context",
        type=int,
        metavar="SLOTS",
        help="slots the KV buffer holds (default 4096, or the model's context)",
    ),
    option(
        "--kv",
        metavar="TYPE",
        help="of the KV cache: llamacpp has f16 (default), q8_0, q4_0 and f32; onnx has what was exported",
    ),
    option("--gpu-layers", type=int, metavar="N", help="llamacpp: layers on the GPU (default -1: all)"),
)
_ANSWER = (
    option("--max-tokens", type=int, metavar="N", help="most tokens of an answer (default 256)"),
    option(
        "--confidence",
        type=float,
        metavar="C",
        help="how sure each further token of a group must be, 0 to 1 (default 0.8; 1: one token a step)",
    ),
    option(
        "--mode",
        choices=["trust", "verify"],
        help="verify: plain decoding's text, but for near ties, in fewer base calls; nothing is merged",
    ),
    option("--temperature", type=float, metavar="T", help="0 (default) is greedy"),
    option("--top-k", type=int, metavar="K", help="sample among the K best tokens"),
    option(
        "--top-p", type=float, metavar="P", help="sample among the best tokens that hold this probability"
    ),
    option("--min-p", type=float, metavar="P", help="leave out tokens below this share of the best one's"),
    option(
        "--repetition-penalty",
        type=float,
        metavar="R",
        help="above 1: tokens of prompt and answer become less likely",
    ),
    option(
        "--presence-penalty", type=float, metavar="R", help="taken off the score of every token of the answer"
    ),
    option("--frequency-penalty", type=float, metavar="R", help="the same, for each time it was said"),
    option("--seed", type=int, metavar="N", help="same seed, same text"),
    option("--stop", action="append", metavar="TEXT", help="end the answer before this text (repeatable)"),
    option("--system", metavar="TEXT", help="system message instead of the model's own"),
    option("--show-steps", action="store_true", help="colour the groups of tokens that came in one step"),
)

COMMANDS = (
    Command(
        "demo",
        "export the built-in model, check it, and let it talk",
        (
            option("model", nargs="?", metavar="MODEL", help="built-in model (default: smollm2-135m)"),
            option("--precision", choices=["fp32", "fp16", "int8", "int4"], help="default int4 (tiny: int8)"),
        ),
        ("hamburger-edge demo", "hamburger-edge demo tiny --precision fp32"),
    ),
    Command(
        "export",
        "turn a checkpoint into a bundle of ONNX graphs or GGUF files",
        (
            option(
                "source",
                metavar="CHECKPOINT",
                help="checkpoint folder, or a built-in model: tiny, smollm2-135m",
            ),
            option("-o", "--output", required=True, metavar="BUNDLE", help="folder to write"),
            option(
                "--flavor",
                default="fused",
                choices=["fused", "portable"],
                help="fused (default): ONNX Runtime's own operators; portable: standard operators only, for "
                "accelerators; its int4 is coarser and its cache float32",
            ),
            option(
                "--format",
                action="append",
                choices=["onnx", "gguf"],
                help="onnx (default), gguf for llama.cpp, or both: give it twice",
            ),
            option(
                "--precision",
                default="int4",
                metavar="P",
                help="fp32, fp16, int8, int4 (default); of GGUF files f32, f16, q8_0, q4_0, q4_1",
            ),
            option("--gguf-precision", metavar="P", help="of the GGUF files, where both are written"),
            option(
                "--block-size",
                type=int,
                metavar="N",
                help="weights that share a scale (power of two); default 64, in fused graphs for a base in "
                "Q4_1 its own blocks of 32, which int4 keeps wherever they matter: slower, far nearer to "
                "float32",
            ),
            option(
                "--keep-head",
                choices=["int8", "fp32"],
                help="precision of all embeddings and heads (default at int4: int8, in fused graphs int4 for "
                "the head's rows of rare tokens)",
            ),
            option(
                "--prefer",
                default="accuracy",
                choices=["accuracy", "speed"],
                help="of fused graphs at int4: near to float32 (default), or coarser and faster (SmolLM2, "
                "whose base is in Q4_1, by a fifth)",
            ),
            option(
                "--kv",
                choices=["fp32", "fp16", "int8"],
                help="KV cache of fused graphs: int8 (default where weights are int8 or int4), fp32 (default "
                "otherwise), or fp16, which CUDA needs",
            ),
            option(
                "--context",
                type=int,
                metavar="SLOTS",
                help="slots a portable bundle's KV buffer holds (default 2048)",
            ),
            option("--no-verify", action="store_true", help="skip the parity gate"),
            option("--force", action="store_true", help="replace an existing bundle"),
        ),
        (
            "hamburger-edge export tiny -o tiny-bundle",
            "hamburger-edge export my-checkpoint -o bundle --precision fp32",
            "hamburger-edge export my-checkpoint -o phone --flavor portable --context 1024",
            "hamburger-edge export my-checkpoint -o gguf --format gguf --precision q8_0",
        ),
        "The last stage compares every graph with its PyTorch module; a bundle that disagrees is not kept.",
    ),
    Command(
        "run",
        "answer one prompt",
        (
            _BUNDLE,
            option("prompt", metavar="PROMPT", help="what to say; - reads standard input"),
            *_RUNTIME,
            *_ANSWER,
            option("--raw", action="store_true", help="no chat template: go on with the prompt as it is"),
            option("--stats", action="store_true", help="print speed and compression at the end"),
            _JSON,
        ),
        (
            'hamburger-edge run bundle "Why is the sky blue?" --show-steps',
            'hamburger-edge run bundle "Write a poem." --temperature 0.7 --seed 1 --confidence 0.9',
            "cat letter.txt | hamburger-edge run bundle - --json",
        ),
    ),
    Command(
        "chat",
        "talk with a model; its answers stay compressed in the cache",
        (_BUNDLE, *_RUNTIME, *_ANSWER),
        ("hamburger-edge chat bundle", "hamburger-edge chat bundle --temperature 0.7 --show-steps"),
        "Commands: /continue, /save FILE, /load FILE, /stats, /reset, /quit. Ctrl-C stops the answer.",
    ),
    Command(
        "verify",
        "compare a bundle with its checkpoint again",
        (
            option("bundle", metavar="BUNDLE", help="folder made by `export`"),
            option(
                "--against",
                metavar="CHECKPOINT",
                help="checkpoint (default: of the name it was made from, built in or here)",
            ),
            option(
                "--backend",
                default="auto",
                choices=["auto", "onnx", "llamacpp"],
                help="which of its files (default: the graphs, where it has any)",
            ),
            _JSON,
        ),
        ("hamburger-edge verify bundle", "hamburger-edge verify bundle --against my-checkpoint --json"),
    ),
    Command(
        "inspect",
        "what is in a bundle: sizes, precision, operators, memory, licences",
        (
            option("bundle", metavar="BUNDLE", help="folder made by `export`"),
            option(
                "--context",
                type=int,
                default=4096,
                metavar="SLOTS",
                help="memory for so many slots (default 4096, or what the bundle can have)",
            ),
            _JSON,
        ),
        ("hamburger-edge inspect bundle", "hamburger-edge inspect bundle --json"),
    ),
    Command(
        "eval",
        "what merging and quantization cost in quality",
        (
            option("bundle", nargs="+", metavar="BUNDLE", help="bundles or checkpoint folders, side by side"),
            option(
                "--reference",
                metavar="CHECKPOINT",
                help="judge by this checkpoint's base in float32 PyTorch, without what the graft changed in "
                "it (default: by the first BUNDLE's own base, one token a slot)",
            ),
            option(
                "--backend",
                default="auto",
                choices=["auto", "onnx", "llamacpp", "torch", "all"],
                help="runtime to use; all: every one that a bundle has files for",
            ),
            *_RUNTIME[1:],
            option(
                "--prompts",
                metavar="FILE.jsonl",
                help="prompts, some with checkable answers (default: the built-in set of 64)",
            ),
            option("--confidence", metavar="C,C,...", help="default 0.9,0.8,0.7; 1 is always there"),
            option("--max-tokens", type=int, metavar="N", help="most tokens of an answer (default 128)"),
            option("--temperature", type=float, metavar="T", help="0 (default) is greedy"),
            option("--seed", type=int, metavar="N", help="default 0"),
            option("--quick", action="store_true", help="two prompts of a kind, 48 tokens, confidence 0.8"),
            option("--json", metavar="FILE", help="write all figures; - prints them instead of the tables"),
            option("--plot", metavar="DIR", help="write quality.png and reliability.png"),
        ),
        (
            "hamburger-edge eval bundle --quick",
            "hamburger-edge eval my-checkpoint fp32-bundle int8-bundle int4-bundle --reference my-checkpoint",
            "hamburger-edge eval bundle --prompts questions.jsonl --json quality.json --plot pictures",
        ),
        "A plain base is the judge: it reads every answer, one token a slot, of all bundles alike. What a\n"
        "bundle loses at confidence 1 lies in its weights, what it loses from there on lies in merging.\n"
        "Without --reference no PyTorch is needed, but the judge is as quantized as the first bundle, and\n"
        "what training changed in the base (a low-rank delta) counts as the base's own.\n\n"
        'Each line of a prompt file is {"prompt": TEXT, "kind": WORD, "check": {"type": T, "value": V}}; '
        "kind and check\nmay be left out. T is exact, contains, regex, or number (the answer's last one).",
    ),
    Command(
        "bench",
        "speed and memory beside other programs, on the same weights",
        (
            option("bundle", nargs="?", metavar="BUNDLE", help="folder made by `export`"),
            option("--shape", metavar="NAME", help="random weights instead: llama-3.2-1b or tiny"),
            option(
                "--force-group",
                type=int,
                metavar="N",
                help="also with every group of N tokens (with --shape default 2)",
            ),
            option(
                "--against",
                metavar="CHECKPOINT",
                help="what the bundle was made from, for the other programs (default: as the bundle says)",
            ),
            option("--only", action="append", metavar="NAME", help="measure this alone (repeatable)"),
            option("--threads", type=int, metavar="N", help="processor threads of each (default: all)"),
            option("--tokens", type=int, metavar="N", help="new tokens of an answer (default 64)"),
            option(
                "--rounds",
                type=int,
                metavar="N",
                help="answers of each, in turn (default 5, one to each prompt)",
            ),
            option(
                "--longest",
                type=int,
                metavar="N",
                help="cost against length up to here, of onnx, onnxruntime-genai and llama.cpp "
                "(default 4096; 0: no)",
            ),
            option("--minutes", type=float, metavar="M", help="stop measuring after M minutes"),
            option(
                "--quick", action="store_true", help="fewer and shorter answers; peers' files are not made"
            ),
            option("--json", metavar="FILE", help="write all figures; - prints them instead of the tables"),
            option("--plot", metavar="DIR", help="write speed.png, length.png and compression.png"),
        ),
        (
            "hamburger-edge bench bundle --quick",
            "hamburger-edge bench bundle --against my-checkpoint --json bench.json --plot pictures",
            "hamburger-edge bench bundle --only onnx --only llama.cpp --threads 4",
            "hamburger-edge bench --shape llama-3.2-1b --force-group 2",
        ),
        "All take turns, A B C A B C, so that what disturbs the machine disturbs all alike; the first round\n"
        "warms up. Names: onnx and llamacpp (at @CONFIDENCE or @verify), onnxruntime-genai, llama.cpp,\n"
        "llama.cpp-lookup, optimum, transformers. Each runs in a process of its own. What they read is\n"
        "built once and kept in the cache folder; programs that are not installed are named and left out.",
    ),
    Command(
        "fetch",
        "bring a base model into the cache folder",
        (
            option("name", metavar="NAME", help="smollm2-135m, or hf:ORG/NAME (needs the extra hub)"),
            option("--verify", action="store_true", help="read every file again and compare its sha256"),
        ),
        ("hamburger-edge fetch smollm2-135m", "hamburger-edge fetch hf:HuggingFaceTB/SmolLM2-360M-Instruct"),
        "The cache folder is HAMBURGER_EDGE_HOME, or the platform's own.",
    ),
    Command(
        "distill",
        "let a base model write the training set",
        (
            option(
                "base", metavar="BASE", help="smollm2-135m, hf:ORG/NAME, a GGUF file or a Hugging Face folder"
            ),
            option(
                "-o", "--output", required=True, metavar="DATA", help="folder for the shards; resumes there"
            ),
            option("--tokens", type=int, required=True, metavar="N", help="answer tokens to collect"),
            option(
                "--prompts", action="append", default=[], metavar="FILE.jsonl", help="questions to mix in"
            ),
            option(
                "--given",
                type=float,
                metavar="SHARE",
                help="conversations that begin with one of --prompts (default 0.4)",
            ),
            option("--seed", type=int, default=0, metavar="N", help="default 0"),
            option("--rows", type=int, metavar="N", help="conversations side by side (default 128)"),
            option("--threads", type=int, metavar="N", help="processor threads"),
        ),
        (
            "hamburger-edge distill smollm2-135m -o data --tokens 1000000",
            "hamburger-edge distill smollm2-135m -o data --tokens 1000000 --prompts questions.jsonl",
        ),
        'Each line of a prompt file is {"prompt": "..."}.',
    ),
    Command(
        "segment",
        "how the base's entropies cut text into groups (the paper's rule)",
        (
            option("data", metavar="DATA", help="folder made by `distill`"),
            option(
                "--low",
                type=float,
                metavar="NATS",
                help="below this a token always joins (default: three rules)",
            ),
            option("--ratio", type=float, metavar="R", help="... or below R times its group's highest"),
            option("--max-steps", type=int, default=4, metavar="N", help="most tokens of a group"),
            option("--sample", type=int, default=0, metavar="N", help="answer to show, cut (default 0)"),
            option("--report", action="store_true", help="no effect: the report is always printed"),
            _JSON,
        ),
        ("hamburger-edge segment data", "hamburger-edge segment data --low 0.5 --ratio 0.7"),
    ),
    Command(
        "train",
        "train a graft by a recipe",
        (
            option("recipe", metavar="RECIPE.toml", help="see models/zoo/*/recipe.toml"),
            option("-o", "--output", required=True, metavar="CHECKPOINT", help="folder to write at the end"),
            option("--minutes", type=float, metavar="M", help="stop after M minutes; run again to go on"),
            option("--finish", action="store_true", help="write a checkpoint also where --minutes ended it"),
            option("--threads", type=int, metavar="N", help="processor threads"),
        ),
        (
            "hamburger-edge train recipe.toml -o my-checkpoint",
            "hamburger-edge train recipe.toml -o my-checkpoint --minutes 25 --finish",
        ),
        "A run that was stopped or killed goes on from its last save.",
    ),
)
