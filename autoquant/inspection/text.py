"""An inspection in words: rows for a terminal."""

import re
from collections.abc import Iterator, Sequence

from autoquant.domain.counted import counted
from autoquant.inspection.comparison import Comparison
from autoquant.inspection.inspection import Inspection, Remark
from autoquant.inspection.kernels import Runs
from autoquant.inspection.nodes import InspectedNode

__all__ = ["fate_rows", "finding_rows", "hint_sentences", "kernel_rows", "remark_rows", "summary_sentences"]

_QUOTED = re.compile(r"'[^']*'")
_ANY = "'...'"
_N_EXAMPLES = 2
_WORDS = {
    Runs.INTEGER: "integer kernels",
    Runs.FLOAT: "float kernels",
    Runs.WEIGHT_ONLY: "weight-only kernels",
    Runs.DYNAMIC: "dynamic kernels",
    Runs.CONVERSION: "conversions (Q, DQ)",
    Runs.REORDER: "layout reorders",
    Runs.CONTROL: "control flow",
    Runs.OTHER: "shapes and indices",
}

Row = tuple[str, ...]


def kernel_rows(inspection: Inspection) -> Iterator[Row]:
    """What, how many, which: the kernels of the optimised graph, then the constants dequantized every time."""
    for runs, kernels in inspection.kernels.items():
        which = ", ".join(f"{n} {op_type.rpartition(':')[2]}" for op_type, n in kernels.items())
        yield _WORDS[runs], str(sum(kernels.values())), which
    if inspection.dequantized:
        size = sum(constant.size_bytes for constant in inspection.dequantized)
        yield "constants dequantized", str(len(inspection.dequantized)), f"{_bytes(size)} at every inference"


def summary_sentences(inspection: Inspection) -> Iterator[str]:
    """How much of the file runs as it is written."""
    n_unlike, n_all = len(inspection.unlike_written), len(inspection.nodes)
    if n_unlike:
        verb = "does" if n_unlike == 1 else "do"
        yield f"{n_unlike} of {counted(n_all, 'node')} {verb} not run as the file says:"
    elif n_all == 1:
        yield "The one node runs as the file says."
    else:
        yield f"All {n_all} nodes run as the file says."


def finding_rows(inspection: Inspection) -> Iterator[Row]:
    """How many, operator, as the file says, as it runs, why with examples: nodes alike are one row."""
    for (*row, why), nodes in sorted(_alike_nodes(inspection).items(), key=lambda item: -len(item[1])):
        shown = "; ".join(nodes[0].causes) if len(nodes) == 1 else why
        yield str(len(nodes)), *row, _with_nodes(shown, [node.name for node in nodes])


def remark_rows(inspection: Inspection) -> Iterator[Row]:
    """How many nodes, what the user should know of them with examples."""
    for text, remarks in _alike_remarks(inspection).items():
        shown = remarks[0].text if len(remarks) == 1 else text
        yield str(len(remarks)), _with_nodes(shown, [remark.name for remark in remarks])


def hint_sentences(inspection: Inspection) -> Iterator[str]:
    """Where the rest is, if rows leave out nodes, or names in their causes and remarks."""
    nodes = [(row[-1], len(found)) for row, found in _alike_nodes(inspection).items()]
    remarks = [(text, len(found)) for text, found in _alike_remarks(inspection).items()]
    if any(n > _N_EXAMPLES or (n > 1 and _ANY in text) for text, n in (*nodes, *remarks)):
        yield "All nodes, with causes and remarks in full: --json"


def _alike_nodes(inspection: Inspection) -> dict[Row, list[InspectedNode]]:
    alike: dict[Row, list[InspectedNode]] = {}
    for node in inspection.unlike_written:
        why = "; ".join(_QUOTED.sub(_ANY, cause) for cause in node.causes)
        alike.setdefault((node.op_type, node.written, node.runs, why), []).append(node)
    return alike


def _alike_remarks(inspection: Inspection) -> dict[str, list[Remark]]:
    alike: dict[str, list[Remark]] = {}
    for remark in inspection.remarks:
        alike.setdefault(_QUOTED.sub(_ANY, remark.text), []).append(remark)
    return alike


def fate_rows(comparison: Comparison) -> Iterator[Row]:
    """How many, operator, kernel in the float model, kernel in this one, as it runs, what is lost."""
    for fate in comparison.fates:
        lost = "float, but not the float model's kernel" if fate.is_slower_float else ""
        there = fate.kernel or ("gone" if fate.runs is not None else "gone, or under another name")
        yield str(fate.n_nodes), fate.op_type, _short(fate.float_kernel or ""), _short(there), fate.runs or "", lost


def _short(kernel: str) -> str:
    """Without onnxruntime's own domain; of a blocked layout there is left ``nchwc:Conv``."""
    return kernel.replace("com.microsoft:", "").replace("com.microsoft.", "")


def _with_nodes(text: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - _N_EXAMPLES} more" if len(names) > _N_EXAMPLES else ""
    return f"{text}\n({', '.join(names[:_N_EXAMPLES])}{more})"


def _bytes(n: float) -> str:
    for unit in ("B", "kB", "MB"):
        if n < 999.5:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} GB"
