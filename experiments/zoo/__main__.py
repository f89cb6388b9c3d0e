"""Make real models and their data: ``python -m experiments.zoo OUT [--only NAME ...] [--list] [--check]``."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.zoo.make import ModelEntry
    from experiments.zoo.sources import Sources


def main() -> int:
    """Make what is asked for; 1 where something could not be made or looks wrong, 2 on bad input."""
    arguments = _parse()
    try:
        from experiments.zoo.make import read_models
    except ModuleNotFoundError as error:
        print(f"The zoo needs {error.name}: pip install -e '.[dev]'", file=sys.stderr)
        return 2
    models = read_models()
    if unknown := sorted(set(arguments.only) - set(models)):
        print(f"Unknown models: {', '.join(unknown)}; --list shows those that there are.", file=sys.stderr)
        return 2
    if arguments.list:
        for name, entry in models.items():
            note = f" [{entry.note}]" if entry.note else ""
            print(f"{name:20} {entry.package:52} {entry.licence:14} {entry.what}{note}")
        return 0
    return _make_all(arguments, [models[name] for name in arguments.only or models])


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.zoo", description=__doc__)
    parser.add_argument(
        "out", nargs="?", type=Path, default=Path("~/.cache/autoquant-zoo"), help="default: %(default)s"
    )
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="NAME", help="only these models")
    parser.add_argument("--list", action="store_true", help="list the models and stop")
    parser.add_argument("--check", action="store_true", help="also run each model over its data")
    parser.add_argument("--force", action="store_true", help="make again what is there")
    return parser.parse_args()


def _make_all(arguments: argparse.Namespace, entries: list["ModelEntry"]) -> int:
    from experiments.zoo.packages import PackageStore
    from experiments.zoo.sources import Sources

    out = arguments.out.expanduser().resolve()
    sources = Sources(PackageStore(out / "_src"))
    failed = [entry.name for entry in entries if not _make(entry, out, sources, arguments)]
    suspects = f"; not made or suspect: {', '.join(failed)}" if failed else ""
    print(f"{len(entries) - len(failed)} of {len(entries)} models in {out}{suspects}")
    return 1 if failed else 0


def _make(entry: "ModelEntry", out: Path, sources: "Sources", arguments: argparse.Namespace) -> bool:
    """Make and check one model; say how it went."""
    from experiments.zoo.check import check_model
    from experiments.zoo.make import make_model

    start = time.perf_counter()
    try:
        is_new = make_model(entry, out, sources, force=arguments.force)
        state = f"made in {time.perf_counter() - start:.1f} s" if is_new else "present"
        check = check_model(out / entry.name) if arguments.check else None
    except Exception as error:  # one model must not stop the others
        print(f"{entry.name:20} not made: {str(error) or type(error).__name__}", flush=True)
        return False
    print(f"{entry.name:20} {state}" + (f"; {check.facts}" if check else ""), flush=True)
    problems = check.problems if check else ()
    for problem in problems:
        print(f"{'':20} {problem}", flush=True)
    return not problems


if __name__ == "__main__":
    sys.exit(main())
