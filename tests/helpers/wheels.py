"""The project's wheels, and environments that have them installed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
from importlib.metadata import distribution
from pathlib import Path

from helpers.places import ROOT


def build_wheels(folder: Path) -> tuple[Path, Path]:
    """Build the core and the built-in checkpoints, both from the one source distribution."""
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "-o", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, cwd=folder)
    [source] = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    [unpacked] = (path for path in folder.iterdir() if path.is_dir())
    wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder]
    subprocess.run([*wheel, unpacked, unpacked / "models" / "zoo"], check=True, capture_output=True)
    [core], [zoo] = folder.glob("hamburger_edge-*.whl"), folder.glob("hamburger_edge_zoo-*.whl")
    return core, zoo


def environment_of(folder: Path, *wheels: Path) -> Path:
    """Return Python of a new environment that has these wheels, and sees this one's other packages."""
    python = _environment(folder, *wheels)
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site_packages(python) / "zz_others.pth").write_text("\n".join(others))
    return python


def lean_environment(folder: Path, wheel: Path, *packages: str) -> Path:
    """Return Python of a new environment that has this wheel, and links to some packages of this one."""
    python = _environment(folder, wheel)
    site = site_packages(python)
    for name in packages:
        package = distribution(name)
        tops = {Path(str(file)).parts[0] for file in package.files or ()} - {"..", "bin", "__pycache__"}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(package.locate_file(top))).resolve())
    return python


def _environment(folder: Path, *wheels: Path) -> Path:
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site_packages(python))]
    subprocess.run([*pip, *wheels], check=True, capture_output=True)
    return python


def site_packages(python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.check_output([str(python), "-c", code], text=True).strip())
