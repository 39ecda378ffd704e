"""Small tokenizers of the two kinds, built on the spot."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
IM_END = 2
TEXT = [
    "the cat sat on the mat",
    "user assistant system hello world\n",
    "héllo wörld 日本 🙂🙂",
    "  if x == 1:\n\t",
]


def byte_level(folder: Path) -> Path:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 4, trainer)
    tokenizer.add_tokens([AddedToken("a token with spaces", special=False)])
    return _saved(tokenizer, folder / "byte_level.json")


def byte_fallback(folder: Path) -> Path:
    """As Llama 2's: words with a leading mark, unknown characters as bytes, a space put before the text."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = sorted({letter for text in TEXT for letter in text.replace(" ", "▁") if ord(letter) < 0x2600})
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("a", "t"), ("▁", "c"), ("▁c", "at")]
    vocabulary = [*pieces, *letters, *(a + b for a, b in merges)]
    tokenizer = Tokenizer(
        models.BPE(
            {piece: index for index, piece in enumerate(vocabulary)},
            merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return _saved(tokenizer, folder / "byte_fallback.json")


def _saved(tokenizer: Tokenizer, path: Path) -> Path:
    tokenizer.save(str(path))
    return path
