"""What a run writes about itself: tables, the report, ``run.json``."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from autoquant.api.configuration import Configuration
from autoquant.api.data import SearchData
from autoquant.api.folder import LEDGER, RunFolder
from autoquant.api.ingredients import Ingredients
from autoquant.api.processes import seen_by_others
from autoquant.domain.front import RunRecord
from autoquant.domain.region import NodeName, Region, RegionId
from autoquant.domain.scheme import Scheme
from autoquant.domain.space import SpaceDefinition
from autoquant.model.source import SourceFiles
from autoquant.report.front_json import front_json
from autoquant.report.html import report_html
from autoquant.report.summary import run_sentences
from autoquant.report.tables import front_table, ledger_table, trials_table

__all__ = ["configuration_document", "ingredients_document", "region_from", "scheme_rows", "write_reports"]

_LOG = logging.getLogger("autoquant")


def configuration_document(
    asked: Configuration, source: SourceFiles, data: SearchData, definition: SpaceDefinition
) -> dict[str, object]:
    """What the user asked for, and digests of what it names."""
    model_sha256, *weights_sha256 = source.digests.values()
    held_out = None if data.is_pooled or data.held_out is None else data.held_out.digest
    return {
        **asked.plain(),
        "accuracy": definition.accuracy,
        "model_sha256": model_sha256,
        "weights_sha256": weights_sha256,
        "calibration_digest": data.calibration.digest,
        "evaluation_digest": data.evaluation_digest,
        "held_out_digest": held_out,
        "space_digest": definition.digest,
    }


def ingredients_document(ingredients: Ingredients) -> dict[str, object]:
    """What candidates are built from, for ``run.json``."""
    difference_db = ingredients.prepared.difference_db
    return {
        "preprocessed_difference_db": None if math.isinf(difference_db) else round(difference_db, 2),
        "n_calibration_samples": ingredients.statistics.n_samples,
        "filling": ingredients.plain_filling,
        "form": ingredients.form,
        "mean_biases": ingredients.has_mean_biases,
        "unrounded": [] if ingredients.rounder is None else sorted(ingredients.rounder.unfinished),
        "own_errors": ingredients.own_errors,
        "schemes": scheme_rows(ingredients.definition.schemes),
        "twins": ingredients.known_twins(),
        "regions": _region_rows(ingredients.regions),
    }


def write_reports(folder: RunFolder, record: RunRecord, run_document: Mapping[str, object]) -> None:
    """All files of a finished run but the models, all or none.

    Raises:
        OutputError: There is no room, or the folder cannot be written.
    """
    ledger = {}
    trials = trials_table(seen_by_others(record.evaluations, record.front), record.regions)
    if record.ledger is not None:
        ledger[LEDGER] = ledger_table(record.ledger).to_csv(index=False, float_format="%.6g")
    folder.write_texts(
        {
            "trials.csv": trials.to_csv(index=False),
            "front.csv": front_table(record.front).to_csv(index=False),
            "report.html": report_html(record),
            "run.json": json.dumps(run_document, indent=1, allow_nan=False) + "\n",
            "front.json": front_json(record.front),
            **ledger,
        }
    )
    if not ledger:
        folder.remove(LEDGER)
    for sentence in (*run_sentences(record), *record.notes):
        _LOG.info("%s", sentence)


def _region_rows(regions: Sequence[Region]) -> list[dict[str, object]]:
    """The partition."""
    return [
        {"id": r.id, "nodes": list(r.nodes), "op_types": list(r.op_types), "work": r.work, "pattern": r.pattern}
        for r in regions
    ]


def region_from(row: Mapping[str, Any]) -> Region:
    """A region as ``run.json`` has it, without its tensors."""
    return Region(
        id=RegionId(row["id"]),
        nodes=tuple(map(NodeName, row["nodes"])),
        inputs=(),
        outputs=(),
        pattern=row["pattern"],
        op_types=tuple(row["op_types"]),
        work=float(row["work"]),
    )


def scheme_rows(schemes: Sequence[Scheme]) -> dict[str, Mapping[str, str]]:
    """The space's schemes by name, spelled as in a space file."""
    return {
        scheme.name: {
            "activation": str(scheme.activation),
            "weight": str(scheme.weight),
            "ranges": str(scheme.ranges),
            "operators": str(scheme.operators),
            "bias": str(scheme.bias),
            "rounding": str(scheme.rounding),
        }
        for scheme in schemes
    }
