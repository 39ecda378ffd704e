"""Structures made to hang a compiler or eat the memory: each ends in one line, within limits that kill."""

from __future__ import annotations

import json
import random
import resource
import sys
from typing import Any

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError
from hamburger_edge.structured.grammar import Grammars
from helpers.grammar_walks import start, walk

LIMIT = 3 << 30  # bytes of address space
SECONDS = 60  # of a processor's time


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def properties(count: int, value: Any = None) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{i}": value or {"type": "string"} for i in range(count)}}


def doubling(kind: str, levels: int) -> dict[str, Any]:
    parts: dict[str, Any] = {"a0": properties(1)}
    for level in range(1, levels):
        part = {"$ref": f"#/$defs/a{level - 1}"}
        parts[f"a{level}"] = {kind: [part, part]} if kind != "object" else properties(2, part)
    return {"$defs": parts, "$ref": f"#/$defs/a{levels - 1}"}


def product(factors: int) -> dict[str, Any]:
    return {
        "allOf": [{"anyOf": [properties(1), {"type": "object", "title": str(i)}]} for i in range(factors)]
    }


def items(**bounds: int) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, **bounds}


NODE = {"$ref": "#/$defs/node"}
SCHEMAS: dict[str, Any] = {
    "deep": nested(2000),
    "as deep as is taken": nested(30),
    "deep arrays": json.loads('{"items":' * 900 + "{}" + "}" * 900),
    "maxItems": items(maxItems=10**9),
    "minItems": items(minItems=10**9, maxItems=10**9),
    "nested maxItems": {"items": {"items": items(maxItems=1000), "maxItems": 1000}, "maxItems": 1000},
    "maxLength": {"type": "string", "maxLength": 10**9},
    "minLength": {"type": "string", "minLength": 10**8},
    "many properties": properties(1000),
    "too many properties": properties(3000),
    "referred properties": {"$defs": {"p": properties(900)}, **properties(900, {"$ref": "#/$defs/p"})},
    "endless": {"$defs": {"node": {**properties(1, NODE), "required": ["p0"]}}, **NODE},
    "recursion": {"$defs": {"node": {"anyOf": [{"type": "null"}, {"items": NODE, "type": "array"}]}}, **NODE},
    "itself": {"$ref": "#"},
    "circle": {"$defs": {"node": NODE}, **NODE},
    "doubling allOf": doubling("allOf", 40),
    "doubling anyOf": doubling("anyOf", 40),
    "doubling objects": doubling("object", 40),
    "product": product(24),
    "large enum": {"enum": [f"word {i}" for i in range(4000)]},
    "long constant": {"const": "x" * 60_000},
    "too long": {"const": "x" * 70_000},
    "multipleOf": {"type": "integer", "multipleOf": 999_999_937},
    "multiples": {"allOf": [{"type": "integer", "multipleOf": n} for n in (997, 991)]},
    "range": {"type": "integer", "minimum": -(10**300), "maximum": 10**300},
    "pattern": {"type": "string", "pattern": "^(([a-z]{1,100}){1,100}){1,100}$"},
}
REGEXES = {
    "repeat": "a{1,100000000}",
    "nested repeats": "((a{1,1000}){1,1000}){1,1000}",
    "words": r"(\w{1,50}){1,50}",
    "catastrophic": "(a*)*(a|aa)+b",
    "exponential": ".*(a|b)*a(a|b){40}.*",
    "parentheses": "(" * 5000 + "a" + ")" * 5000,
    "alternatives": "|".join(f"a.*{i}.*b" for i in range(2000)),
}
GRAMMARS = {
    "left": 'start: start start | "a"',
    "endless": 'start: "a" start',
    "ambiguous": 'start: a\na: a a a | a a | "x" |',
    "repeat": 'start: a{1,1000000000}\na: "x" | "y"',
    "parentheses": "start: " + "(" * 3000 + '"a"' + ")" * 3000,
    "a schema inside": 'start: %json {"type": "integer", "multipleOf": 1000003}',
    "a wide schema inside": f'start: "a" a\na: %json {json.dumps(properties(3000))}',
    "a deep schema inside": f"start: %json{json.dumps(nested(300))}",
    "a schema inside that is none": 'start: %json {"type": }',
    "a multiple of many digits": f'start: %json {{"type": "integer", "multipleOf": {"9" * 5000}}}',
}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    tokenizer = Tokenizer(sys.argv[1])
    grammars = Grammars(tokenizer.to_json, tokenizer.vocab_size, [2])
    kinds: dict[str, dict[str, Any]] = {"json_schema": SCHEMAS, "regex": REGEXES, "grammar": GRAMMARS}
    for kind, bombs in kinds.items():
        for name, bomb in bombs.items():
            try:
                walk(start(grammars, **{kind: bomb}), random.Random(0).choice, most=60)
                ended = "works"
            except InputError as error:
                ended = f"InputError: {error}"
            print(json.dumps([f"{kind}: {name}", ended]), flush=True)


if __name__ == "__main__":
    main()
