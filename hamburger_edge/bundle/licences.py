"""The licences that an app with a bundle has to show: those of the model, and of the packages that run it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.manifest import Manifest, Origin
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import printable
from hamburger_edge.support.files import is_terms, read_regular

OURS = "hamburger-edge"
LARGEST = 8 << 20  # bytes of a text; ONNX Runtime's third-party notices have 0.4 million
_TEXTS = re.compile(r"(licen[sc]e|notice|copying|third.?party.?notices)[-.\w]*|[-\w]+_licen[sc]e\.txt", re.I)
_CODE = (".py", ".pyc", ".pyi", ".so", ".h", ".json")


@dataclass(frozen=True)
class Licence:
    part: str  # "base", "graft" or "package"
    name: str
    version: str | None  # of a package; None: not installed here
    licence: str | None  # "Apache-2.0"; None: not stated
    texts: dict[str, str]  # file name -> text


def licences(bundle: str | Path) -> list[Licence]:
    """Return the licences of a bundle's base and graft, then those of the packages that run it."""
    folder = Path(bundle)
    manifest = load_manifest(folder)
    check_files(folder, manifest)
    terms = {entry.path for entry in manifest.files if is_terms(entry.path)}
    texts = {name: _decoded(read_regular(folder / name, limit=LARGEST)) for name in sorted(terms)}
    return [
        _of_part("base", manifest.base, texts),
        *([_of_part("graft", manifest.graft, {})] if manifest.has_update else []),
        *map(_of_package, _packages(manifest)),
    ]


def licences_json(bundle: str | Path) -> dict[str, Any]:
    return {"licences": [asdict(licence) for licence in licences(bundle)]}


def licences_text(bundle: str | Path) -> str:
    """Return a table of all licences, then their texts; a text that several share appears once."""
    entries = licences(bundle)
    titles = [f"{licence.name} {licence.version or ''}".rstrip() for licence in entries]
    width = max(map(len, titles))
    lines = [
        printable(f"{licence.part:<8} {title:<{width}}  {_summary(licence)}")
        for licence, title in zip(entries, titles, strict=True)
    ]
    first_title: dict[str, str] = {}
    for licence, title in zip(entries, titles, strict=True):
        for name, text in licence.texts.items():
            lines += ["", printable(f"==== {title}: {name}"), ""]
            if text in first_title:
                lines.append(printable(f"The text of {first_title[text]} above."))
            else:
                first_title[text] = f"{title}: {name}"
                lines += [printable(line) for line in text.expandtabs().splitlines()]
    return "\n".join(lines)


def _summary(licence: Licence) -> str:
    if licence.part == "package" and licence.version is None:
        return "not installed here"
    name = licence.licence or "not stated"
    return name if licence.texts or licence.part == "graft" else f"{name} (its files have no text of it)"


def _of_part(part: str, origin: Origin, texts: dict[str, str]) -> Licence:
    return Licence(part, origin.name, None, origin.license, texts)


# -- packages ----------------------------------------------------------------------------------------------


def _packages(manifest: Manifest) -> Iterator[str]:
    """Yield the packages that run the bundle; llguidance constrains answers to schemas."""
    yield from (OURS, "numpy", "tokenizers")
    if manifest.graphs:
        yield "onnxruntime"
    if manifest.gguf is not None and (not manifest.graphs or _installed("llama-cpp-python")):
        yield "llama-cpp-python"
    if _installed("llguidance"):
        yield "llguidance"


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _of_package(name: str) -> Licence:
    package = _installed(name)
    if package is None:
        return Licence("package", name, None, None, {})
    licence = _stated(package)
    texts = _texts(package)
    own = _installed(OURS)
    if not texts and own and "apache" in (licence or "").lower():  # tokenizers ships no text
        texts = _texts(own)
    return Licence("package", name, package.version, licence, texts)


def _stated(package: Distribution) -> str | None:
    """Return the licence in a package's metadata: an expression, a line, or a classifier."""
    fields: Any = package.metadata
    for name in ("License-Expression", "License"):
        if (text := fields.get(name)) and "\n" not in text:  # a field with line breaks holds the text
            return str(text)
    classifiers = fields.get_all("Classifier") or ()
    names = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License :: ")]
    return ", ".join(names) or None


def _texts(package: Distribution) -> dict[str, str]:
    """Return the texts of licences and notices among a package's files, by their path in the package."""
    texts: dict[str, str] = {}
    for file in sorted(package.files or (), key=str):
        path = Path(str(package.locate_file(file)))
        if _TEXTS.fullmatch(file.name) and file.suffix not in _CODE and path.is_file():
            name = re.sub(r"^[^/]+\.dist-info/(licenses/)?", "", file.as_posix())
            text = _decoded(read_regular(path, limit=LARGEST))
            if text not in texts.values():
                texts[name] = text
    return texts


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")
