"""Build a `tokenizers` tokenizer from a SentencePiece vocabulary in a GGUF file: Gemma 3, Llama 2.

SentencePiece joins two neighbours if their text is a piece, the piece of the highest score first. BPE joins
pairs in the order of a list, so the list holds every pair of pieces whose text is a piece, by its score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.bases.formats.gguf_file import GGUFFile

# llama.cpp's token types
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SPACE = "\u2581"


def sentencepiece_tokenizer(file: GGUFFile) -> Tokenizer:
    tokens, types = file.need("tokenizer.ggml.tokens"), file.need("tokenizer.ggml.token_type")
    scores = file.need("tokenizer.ggml.scores")
    if types.count(BYTE) != 256:
        raise CheckpointError(
            f"{file.path}: its SentencePiece vocabulary has {types.count(BYTE)} byte tokens, not 256: "
            "put the model's tokenizer.json beside it"
        )
    unknown = file.get("tokenizer.ggml.unknown_token_id")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    pieces = {
        token: score for token, score, kind in zip(tokens, scores, types, strict=True) if kind == NORMAL
    }
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=_merges(pieces, vocabulary),
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    first_space = bool(file.get("tokenizer.ggml.add_space_prefix", True))
    steps = [normalizers.Prepend(SPACE)] if first_space else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    ends = [decoders.Strip(" ", 1, 0)] if first_space else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *ends]
    )
    tokenizer.add_tokens(list(_added(tokens, types)))
    begin = file.get("tokenizer.ggml.bos_token_id")
    if begin is not None and file.get("tokenizer.ggml.add_bos_token", True):
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{tokens[begin]} $A",
            pair=f"{tokens[begin]} $A $B",
            special_tokens=[(tokens[begin], begin)],
        )
    return tokenizer


def _merges(pieces: Mapping[str, float], numbers: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every pair whose text is a piece: by score, then by the halves' own numbers."""
    ranked = [
        (-score, numbers[piece[:cut]], numbers[piece[cut:]], cut, piece)
        for piece, score in pieces.items()
        for cut in range(1, len(piece))
        if piece[:cut] in pieces and piece[cut:] in pieces
    ]
    return [(piece[:cut], piece[cut:]) for *_, cut, piece in sorted(ranked)]


def _added(tokens: Sequence[str], types: Sequence[int]) -> Iterator[AddedToken]:
    """Tokens that are found in a text before anything is joined."""
    for token, kind in zip(tokens, types, strict=True):
        if kind in (UNKNOWN, CONTROL, USER_DEFINED):
            yield AddedToken(token, special=kind != USER_DEFINED, normalized=False)
