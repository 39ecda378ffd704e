"""Draws docs/images/groups.svg: answers of real models as their groups appear, one macro step a beat.

    python docs/images/groups.py                                   # the picture of the README
    python docs/images/groups.py my-bundle "Play jazz" > other.svg  # bundles and questions by turns

Each question is answered twice with the same beat: by plain decoding (confidence 1), and as the model
recommends.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

import hamburger_edge
from hamburger_edge.loop.dial import PLAIN, Recommended

QUESTIONS = (
    *("voice-commands", "Play some jazz by Miles Davis from the fifties"),
    *("proofread", "I recieved 2 tickets for Ann O'Hara , but teh train too Leeds leaves at 10:35"),
)
MAX_TOKENS = 60
BEAT, HOLD = 0.3, 3.0  # seconds: a macro step, and the whole picture before it begins again
LETTER, LINE, MARGIN, WIDTH = 8.4, 24, 20, 860
COLUMNS = int((WIDTH - 2 * MARGIN) / LETTER)
TINTS = ("#1d4e79", "#6b4a12", "#2f5d2b", "#54306b")  # of consecutive groups of two and more tokens


@dataclass(frozen=True)
class Answer:
    title: str
    pieces: list[tuple[str, int]]  # text and tokens of each macro step


def ask(model: hamburger_edge.Model, question: str, setting: Recommended) -> Answer:
    stream = model.stream(question, **asdict(setting), max_tokens=MAX_TOKENS, reuse_prefix=False)
    pieces = [(chunk.text, len(chunk.tokens)) for chunk in stream]
    stats = stream.stats
    mode = "" if setting.mode == "merge" else f", mode {setting.mode}"
    how = "plain decoding" if setting == PLAIN else f"confidence {setting.confidence}{mode}"
    count = f"{stats.tokens} tokens in {stats.macro_steps} steps ({stats.tokens_per_step:.2f} a step)"
    return Answer(f"{how}: {count}", pieces)


def text(x: float, y: float, words: str, colour: str, more: str = "") -> str:
    width = f'textLength="{len(words) * LETTER:.1f}" lengthAdjust="spacingAndGlyphs"'
    kept = escape(words).replace(" ", "\N{NO-BREAK SPACE}")  # browsers drop leading spaces
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" {width} {more}>{kept}</text>'


def draw(answer: Answer, y: float, seconds: float) -> tuple[list[str], float]:
    """The pieces of an answer, each to appear at its beat -> elements, and where they end."""
    out, column, tint = [], 0, 0
    for beat, (words, tokens) in enumerate(answer.pieces, 1):
        elements = []
        tint += tokens > 1
        for number, line in enumerate(words.split("\n")):
            if number or column + len(line) > COLUMNS:
                column, y = 0, y + LINE
                line = line if number else line.lstrip()
            x = MARGIN + column * LETTER
            if tokens > 1 and line:
                box = f'x="{x:.1f}" y="{y - 16:.1f}" width="{len(line) * LETTER - 1:.1f}" height="21" rx="4"'
                elements.append(f'<rect {box} fill="{TINTS[tint % len(TINTS)]}"/>')
            if line:
                elements.append(text(x, y, line, "#f2f2f2"))
            column += len(line)
        times = f'values="0;1" keyTimes="0;{beat * BEAT / seconds:.4f}" calcMode="discrete"'
        appear = f'<animate attributeName="opacity" {times} dur="{seconds:.1f}s" repeatCount="indefinite"/>'
        out.append(f"<g>{''.join(elements)}{appear}</g>")
    return out, y


def picture(asked: list[tuple[str, list[Answer]]]) -> str:
    steps = max(len(answer.pieces) for _, answers in asked for answer in answers)
    seconds = steps * BEAT + HOLD
    out, y = [], 16.0
    for heading, answers in asked:
        y += LINE
        out.append(text(MARGIN, y, heading, "#ffd479", 'font-weight="bold"'))
        for answer in answers:
            y += LINE + 6
            out.append(text(MARGIN, y, answer.title, "#9aa4ad"))
            elements, y = draw(answer, y + LINE, seconds)
            out += elements
        y += 12
    head = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 12:.0f}" width="{WIDTH}"'
    font = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14"'
    ground = '<rect width="100%" height="100%" rx="10" fill="#16191d"/>'
    return "\n".join([f"<svg {head} {font}>", ground, *out, "</svg>"]) + "\n"


def main(words: list[str]) -> None:
    asked = []
    given = words or QUESTIONS
    for bundle, question in zip(given[::2], given[1::2], strict=True):
        with hamburger_edge.load(bundle, threads=1) as model:
            settings = PLAIN, model.info.recommended
            answers = [ask(model, question, setting) for setting in settings]
        asked.append((f"{Path(bundle).name} > {question}", answers))
    if words:
        sys.stdout.write(picture(asked))
    else:
        Path(__file__).with_suffix(".svg").write_text(picture(asked), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
