"""The shape of the project: who may import whom, how light the core is, and that the wheel is whole."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "core": "hamburger_edge",
    "export": "export",
    "runtimes": "runtimes",
    "models": "models",
    "benchmarks": "benchmarks",
}
# models may use these
LEAVES = ("hamburger_edge.errors", "hamburger_edge.support.", "hamburger_edge.chat.markup")


UNBUILT = ("peers", "llama_cpp.py")  # imports llama.cpp at its top


def imports(path: Path, *, inside_functions: bool) -> set[str]:
    """Modules of this project that a file imports; type-checking blocks do not count."""
    found: set[str] = set()

    def visit(node: ast.AST, in_function: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import | ast.ImportFrom) and (inside_functions or not in_function):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found.update(name for name in names if name.split(".")[0] == "hamburger_edge")
        in_function |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            visit(child, in_function)

    visit(ast.parse(path.read_text()), False)
    return found


def part_of(module: str) -> str:
    second = module.split(".")[1] if "." in module else ""
    return second if second in FOLDERS else "core"


def modules(part: str) -> list[Path]:
    return sorted(p for p in (ROOT / FOLDERS[part]).glob("**/*.py") if "zoo" not in p.parts)


def test_core_reaches_outward_only_inside_functions() -> None:
    for path in modules("core"):
        outward = {m for m in imports(path, inside_functions=False) if part_of(m) != "core"}
        assert not outward, f"{path.name} imports {outward} at its top"
        if "cli" not in path.parts and path.name != "loading.py":
            outward = {m for m in imports(path, inside_functions=True) if part_of(m) != "core"}
            assert not outward, f"{path.name} imports {outward}"


def test_models_use_nothing_but_leaves_of_the_core() -> None:
    for path in modules("models"):
        for module in imports(path, inside_functions=True):
            assert part_of(module) == "models" or module.startswith(LEAVES), f"{path.name} imports {module}"


def test_runtimes_use_core_and_only_the_reference_uses_models() -> None:
    for path in modules("runtimes"):
        allowed = {"core", "runtimes"} | ({"models"} if "torch" in path.parts else set())
        for module in imports(path, inside_functions=True):
            assert part_of(module) in allowed, f"{path.name} imports {module}"


def test_export_uses_runtimes_for_parity_only() -> None:
    for path in modules("export"):
        for module in imports(path, inside_functions=True):
            if part_of(module) == "runtimes":
                assert "parity" in path.parts, f"{path.name} imports {module}"


def test_only_the_command_line_uses_benchmarks() -> None:
    for part in FOLDERS:
        for path in modules(part):
            if part != "benchmarks" and "cli" not in path.parts:
                used = {m for m in imports(path, inside_functions=True) if part_of(m) == "benchmarks"}
                assert not used, f"{path.name} imports {used}"


def test_every_part_has_modules_to_check() -> None:
    assert all(len(modules(part)) >= 3 for part in FOLDERS)


WITHOUT_EXTRAS = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "onnx", "onnx_ir", "onnxscript", "safetensors", "gguf"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nothing())
from hamburger_edge.cli.main import main
bundle, data, new = sys.argv[1:]
for words in (["run", "tiny", "Hi"], ["demo"], ["verify", bundle],
              ["export", "tiny", "-o", new], ["eval", "tiny", "--quick"], ["segment", data],
              ["distill", "smollm2-135m", "-o", new, "--tokens", "9"], ["train", "recipe.toml", "-o", new],
              ["bench", bundle, "--quick"], ["run", bundle, "Hi", "--max-tokens", "3"]):
    print("code", main(words), words, flush=True, file=sys.stderr)
"""


def test_a_command_names_the_extra_that_it_lacks(bundle: Path, tmp_path: Path) -> None:
    code = [sys.executable, "-c", WITHOUT_EXTRAS, bundle, tmp_path, tmp_path / "new"]
    done = subprocess.run(code, capture_output=True, text=True)
    *lacking, bench, last = re.split(r"code (?=\d)", done.stderr)[:-1]
    for said in lacking:
        assert re.search(r"error: \w+ is not installed: run  pip install 'hamburger-edge\[\w+\]'\n$", said), (
            said
        )
    assert "Traceback" not in done.stderr
    assert "context of 512 is too short" in bench  # which wants no extra to get that far
    assert "error" not in last


def test_importing_the_core_stays_light() -> None:
    code = (
        "import sys, time, numpy, onnxruntime; t = time.perf_counter(); import hamburger_edge;"
        "print(time.perf_counter() - t); print('\\n'.join(sys.modules))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {name.split(".")[0] for name in printed.splitlines()[1:]}
    heavy = {"torch", "onnx", "transformers", "llama_cpp", "gguf", "safetensors", "onnxscript", "optimum"}
    assert not loaded & heavy
    without = "import sys, hamburger_edge; assert 'onnxruntime' not in sys.modules"
    subprocess.run([sys.executable, "-c", without], check=True)


def test_the_core_needs_three_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = sorted(requirement.split(">")[0] for requirement in project["dependencies"])
    assert names == ["numpy", "onnxruntime", "tokenizers"]


def test_no_file_is_too_long() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    long = {f: n for f in tracked if (n := len((ROOT / f).read_text().splitlines())) > 600}
    assert not long


@pytest.fixture(scope="module")
def installed_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment that has the built wheel, and sees this one's other packages."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # setuptools packs what an older build left there
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, cwd=folder)
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    site = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    others = [p for p in sys.path if p.endswith("site-packages")]
    (Path(site) / "zz_others.pth").write_text("\n".join(others))
    return python


def test_wheel_is_whole_outside_the_checkout(installed_wheel: Path, tmp_path: Path) -> None:
    names = [
        ".".join(
            [
                "hamburger_edge",
                *([] if part == "core" else [part]),
                *path.relative_to(ROOT / FOLDERS[part]).with_suffix("").parts,
            ]
        )
        for part in FOLDERS
        for path in modules(part)
        if path.stem not in ("__init__", "__main__", "lm_eval_adapter") and path.parts[-2:] != UNBUILT
    ]
    code = (
        "import importlib, json, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "import hamburger_edge, hamburger_edge.models.checkpoints.checkpoint as c\n"
        "print(json.dumps([hamburger_edge.__file__, c.__file__, c.built_in()]))"
    )
    printed = subprocess.run([str(installed_wheel), "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert printed.returncode == 0, printed.stderr
    core, checkpoint, names_of_zoo = json.loads(printed.stdout.splitlines()[-1])
    assert str(ROOT) not in core
    assert str(ROOT) not in checkpoint
    zoo = {p.parent.name for p in (ROOT / "models" / "zoo").glob("*/hamburger.json")}
    assert set(names_of_zoo) == zoo


def test_wheel_holds_each_module_once(installed_wheel: Path) -> None:
    found = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.check_output([str(installed_wheel), "-c", found], text=True)
    installed = Path(site.strip()) / "hamburger_edge"
    expected = {
        Path("" if part == "core" else part) / path.relative_to(ROOT / FOLDERS[part])
        for part in FOLDERS
        for path in modules(part)
    }
    assert {path.relative_to(installed) for path in installed.glob("**/*.py")} == expected
    assert not [path for path in installed.glob("**/*") if path.is_symlink()]


def test_links_let_editors_and_mypy_find_every_package() -> None:
    staged = ["git", "ls-files", "--stage", "hamburger_edge"]
    entries = re.findall(r"120000 (\w+) \d\t(.*)", subprocess.check_output(staged, cwd=ROOT, text=True))
    links = {
        name: subprocess.check_output(["git", "cat-file", "blob", blob], cwd=ROOT, text=True)
        for blob, name in entries
    }
    assert links == {f"hamburger_edge/{part}": f"../{FOLDERS[part]}" for part in FOLDERS if part != "core"}


def test_nothing_tracked_is_private_or_heavy() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    sizes = {f: (ROOT / f).stat().st_size for f in tracked if f and (ROOT / f).is_file()}
    assert sum(sizes.values()) < 60 << 20
    assert not [f for f in sizes if f.endswith((".pt", ".ckpt", ".bin", ".pkl"))]
