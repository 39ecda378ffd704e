"""`hamburger-edge serve`: a local server with OpenAI's API and a web page."""

from __future__ import annotations

import argparse
import contextlib
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from hamburger_edge.bundle.manifest import FILE_NAME
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.options import RUNTIME, bundle_of, runtime_options
from hamburger_edge.errors import InputError
from hamburger_edge.loading import load
from hamburger_edge.support.processors import usable_processors
from hamburger_edge.support.terminal import note
from hamburger_edge.support.values import number_in, whole_in

if TYPE_CHECKING:
    from hamburger_edge.serve.gate import Access


def run(options: argparse.Namespace) -> None:
    from hamburger_edge.serve.application import RequestLog
    from hamburger_edge.serve.browser import NOTHING, InBrowser
    from hamburger_edge.serve.jobs import MOST_WAITING
    from hamburger_edge.serve.pool import Pool
    from hamburger_edge.serve.requests import RequestLimits
    from hamburger_edge.serve.server import Server, listen
    from hamburger_edge.serve.suggestions import suggestions

    access = access_of(options)
    workers = whole_in("--workers", options.workers, 1, 64)
    queue = whole_in("--queue", options.queue, 0, MOST_WAITING)
    sessions = whole_in("--sessions", options.sessions, 0, 10_000)
    limits = RequestLimits(
        body=whole_in("--max-body", options.max_body, 1024, 1 << 30),
        answer_seconds=number_in("--timeout", options.timeout, 1, 86_400),
    )
    grace = number_in("--grace", options.grace, 0, 3600)
    runtime = {"threads": max(1, usable_processors() // workers), **runtime_options(options)}
    if options.backend == "torch":
        runtime.pop("threads")
    with listen(options.host, whole_in("--port", options.port, 0, 65535)) as listening:
        # bundles of built-in models are made now, before the models load
        sources = dict(named(options.bundle))
        folders = {name: bundle_of(path, options.backend) for name, path in sources.items()}
        bundles = [
            (name, functools.partial(load, folder, options.backend, **runtime))
            for name, folder in folders.items()
        ]
        in_browser = NOTHING
        if options.browser:
            in_browser = InBrowser.of(Path(options.browser), for_browsers(options, folders))
        pool = Pool(bundles, workers=workers, queue=queue, sessions=sessions)
        try:
            host = f"[{options.host}]" if ":" in options.host else options.host
            where = f"{', '.join(pool.served)} at http://{host}:{listening.getsockname()[1]}"
            log = RequestLog(prompts=options.log_prompts)
            server = Server(
                pool,
                access,
                limits,
                log,
                grace=grace,
                in_browser=in_browser,
                suggestions={name: suggestions(sources[name], folder) for name, folder in folders.items()},
                ready=lambda: note(where),
            )
            with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again after Ctrl-C
                server.run(sockets=[listening])
        finally:
            pool.close()


def named(given: list[str]) -> list[tuple[str, str]]:
    """Return (name, bundle) of each NAME=BUNDLE or BUNDLE; the default name is the folder's name."""
    models: list[tuple[str, str]] = []
    for model in given or ["smollm2-135m"]:
        name, equals, path = model.partition("=")
        if not equals or Path(model).exists():
            name, path = Path(model).resolve().name, model
        if not name or not path:
            raise InputError(f"{model}: give a BUNDLE, or NAME=BUNDLE")
        models.append((name, path))
    names = [name for name, _ in models]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"two models are called {twice}: give them names of their own, NAME=BUNDLE")
    return models


def access_of(options: argparse.Namespace) -> Access:
    from hamburger_edge.serve.gate import Access, is_local, read_keys

    keys = [] if options.api_key_file is None else read_keys(options.api_key_file)
    if keys and options.no_auth:
        raise InputError("--api-key-file and --no-auth exclude each other: give one")
    if not is_local(options.host) and not keys and not options.no_auth:
        raise InputError(
            f"--host {options.host} is open to other machines: give a key with  --api-key-file FILE, "
            "or let everybody in with  --no-auth"
        )
    return Access.of(options.host, names=options.allow_host or (), origins=options.cors or (), keys=keys)


def for_browsers(options: argparse.Namespace, folders: dict[str, Path]) -> dict[str, Path]:
    """Return each model's bundle for browsers: --browser-bundle, else the served one if it has graphs."""
    own = dict(named(options.browser_bundle)) if options.browser_bundle else {}
    if len(folders) == len(own) == 1:  # no name is needed
        own = dict(zip(folders, own.values(), strict=True))
    if strange := sorted(set(own) - set(folders)):
        raise InputError(f"--browser-bundle {strange[0]}: no such model is served ({', '.join(folders)} are)")
    bundles = {}
    for name, folder in folders.items():
        if name in own:
            bundles[name] = bundle_of(own[name])
        elif (folder / FILE_NAME).is_file() and load_manifest(folder).graphs:
            bundles[name] = folder
    for name, folder in bundles.items():
        if load_manifest(folder).precision.base != "int8":
            note(f"{name}: slow in browsers: give one of  export --precision int8  with  --browser-bundle")
    return bundles


COMMAND = Command(
    name="serve",
    summary="serve models on this device: OpenAI's interface, and a page to try them in",
    options=(
        option(
            "bundle",
            nargs="*",
            metavar="BUNDLE",
            help="folder made by `export`, NAME=FOLDER, or a built-in model (default smollm2-135m)",
        ),
        option("--host", default="127.0.0.1", metavar="ADDRESS", help="to listen on (default 127.0.0.1)"),
        option("--port", type=int, default=8080, metavar="N", help="to listen on (default 8080; 0: any)"),
        option(
            "--api-key-file",
            metavar="FILE",
            help="accept only requests with a key of this file, one per line",
        ),
        option("--no-auth", action="store_true", help="no key, although other machines can reach this one"),
        option(
            "--allow-host", action="append", metavar="NAME", help="a further name of this server (repeatable)"
        ),
        option(
            "--cors", action="append", metavar="ORIGIN", help="pages of this site may ask too (repeatable)"
        ),
        option(
            "--workers", type=int, default=1, metavar="N", help="answers at a time of each model (default 1)"
        ),
        option(
            "--queue",
            type=int,
            default=64,
            metavar="N",
            help="requests of each client that may wait (default 64)",
        ),
        option(
            "--sessions",
            type=int,
            default=8,
            metavar="N",
            help="conversations kept in memory, so that only what is new is read (default 8)",
        ),
        option("--max-body", type=int, default=1 << 20, metavar="BYTES", help="of a request (default 1 MiB)"),
        option(
            "--timeout", type=float, default=600, metavar="S", help="an answer may take so long (default 600)"
        ),
        option(
            "--grace", type=float, default=10, metavar="S", help="for answers when it is stopped (default 10)"
        ),
        option(
            "--browser",
            metavar="FOLDER",
            help="of the package for JavaScript, as npm installs it: the page offers to run there too",
        ),
        option(
            "--browser-bundle",
            action="append",
            metavar="BUNDLE",
            help="made with `export --precision int8`: what browsers get instead of the one that is served; "
            "NAME=FOLDER where several are served (repeatable)",
        ),
        option("--log-prompts", action="store_true", help="write what is asked and answered to the log"),
        *RUNTIME,
    ),
    examples=(
        "hamburger-edge serve bundle",
        "hamburger-edge serve small=bundle-135m large=bundle-1b --workers 2 --port 9000",
        "hamburger-edge serve bundle --browser runtimes/javascript --browser-bundle int8-bundle",
        "hamburger-edge serve bundle --host 0.0.0.0 --api-key-file keys.txt",
    ),
    run=run,
    extra="serve",
)
