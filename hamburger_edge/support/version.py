"""Which version of the project this is."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("hamburger-edge")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"
