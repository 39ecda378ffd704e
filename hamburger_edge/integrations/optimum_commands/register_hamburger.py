"""Register `optimum-cli export hamburger`, which runs the export of `hamburger-edge`.

This file is installed into the namespace package `optimum.commands.register`. Optimum imports every module of
that package at each start, so the libraries for exporting are imported only by the export itself.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from optimum.commands.base import BaseOptimumCLICommand, CommandInfo
from optimum.commands.export.base import ExportCommand

from hamburger_edge.cli.commands import export
from hamburger_edge.errors import HamburgerError
from hamburger_edge.support.terminal import note


class HamburgerExportCommand(BaseOptimumCLICommand):  # type: ignore[misc]
    COMMAND = CommandInfo(name="hamburger", help="Export a HAMburger to a bundle of hamburger-edge's.")

    @staticmethod
    def parse_args(parser: ArgumentParser) -> None:
        parser.add_argument(
            "-m",
            "--model",
            required=True,
            metavar="CHECKPOINT",
            help="checkpoint folder, or a built-in model: tiny, smollm2-135m, voice-commands, proofread",
        )
        parser.add_argument("output", metavar="BUNDLE", help="folder to write")
        for entry in export.OPTIONS:
            parser.add_argument(*entry.flags, **entry.settings)

    def run(self) -> None:
        try:
            export.run(Namespace(**vars(self.args), source=self.args.model, json=False))
        except HamburgerError as error:
            note(f"error: {error}")
            raise SystemExit(1) from None


REGISTER_COMMANDS = [(HamburgerExportCommand, ExportCommand)]
