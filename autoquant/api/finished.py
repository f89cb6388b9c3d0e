"""A finished run, read from the files of its folder."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from autoquant.api.documents import region_from
from autoquant.api.folder import FRONT, GIVEN_WAY, read_json
from autoquant.api.result import SearchResult
from autoquant.domain.arguments import check_type
from autoquant.domain.front import Front, RunRecord
from autoquant.domain.reason import one_line
from autoquant.errors import OutputError, UsageError
from autoquant.report.front_json import front_from_json
from autoquant.study.study import read_evaluations

__all__ = ["load_result"]

_ADVICE = "give the folder of another run"


def load_result(run: str | os.PathLike[str]) -> SearchResult:
    """Open a finished run again, as ``search`` or ``resolve`` returned it.

    Args:
        run: Its folder.

    Returns:
        The same front and the trials as they were told; of a run that is being resumed the front of before. Files do
        not hold all of the record: its ledger is None, as ``ledger.csv`` has only the numbers, inputs and outputs of
        regions are empty, qualities of members are of 0 samples, and SNRs from 200 dB on infinite. Its configuration
        is that of ``run.json``, with digests of what was given.

    Raises:
        UsageError: The folder holds no run, one that is not finished, damaged files, or trials of other code.
    """
    check_type("the run", run, (str, os.PathLike), "the path of its folder")
    folder = Path(run)
    if not os.path.exists(folder / "run.json"):  # that of Path raises where a folder is closed or a name too long
        raise UsageError(f"{folder}: there is no run; give the folder that a search has written")
    if not os.path.exists(folder / FRONT):
        raise UsageError(f"{folder}: its run is not finished; go on with it by autoquant.search(..., resume=True)")
    try:
        document = read_json(folder / "run.json", _ADVICE)
    except OutputError as error:
        raise UsageError(str(error)) from error
    try:
        return SearchResult(folder, _record(folder, document))
    except (AttributeError, KeyError, OSError, OutputError, TypeError, ValueError) as error:
        raise UsageError(f"{folder}: its files are damaged ({one_line(error)}); {_ADVICE}") from error


def _front(folder: Path) -> Front:
    """The front, or that of before while new models are measured."""
    earlier = folder / GIVEN_WAY
    if not (earlier / FRONT).exists():
        return front_from_json((folder / FRONT).read_text(encoding="utf-8"))
    found = front_from_json((earlier / FRONT).read_text(encoding="utf-8"))
    members = [replace(member, path=f"{GIVEN_WAY}/{PurePosixPath(member.path).name}") for member in found.members]
    return replace(found, members=tuple(members))


def _record(folder: Path, document: Mapping[str, Any]) -> RunRecord:
    saved = document["seconds_saved"]
    return RunRecord(
        front=_front(folder),
        regions=tuple(map(region_from, document["regions"])),
        evaluations=tuple(read_evaluations(folder / "study.journal")),
        environment=dict(document["environment"]),
        configuration=dict(document["configuration"]),
        phases={name: float(seconds) for name, seconds in document["seconds"].items()},
        notes=tuple(map(str, document["notes"])),
        seconds_saved=None if saved is None else float(saved),
    )
