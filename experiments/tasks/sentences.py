"""Whether sentences stay as similar as they were: ``python -m experiments.tasks.sentences ZOO_DIR [RUN_DIR]``.

Nobody says which sentences are similar, so the float model does: the metrics compare with its outputs.
"""

import sys
from collections.abc import Sequence

import numpy as np

from autoquant.domain.feed import Feed
from autoquant.metrics.custom import FLOAT_PREFIX, Labels, OutputsByName
from experiments.tasks.table import Task, main

__all__ = ["TASK", "nearest_agreement", "ranks", "similarity_ranking", "spearman"]


def similarity_ranking(outputs: Sequence[OutputsByName], _: Sequence[Feed], labels: Labels) -> float:
    """Spearman's correlation between the cosine similarities of all pairs, the model's and float's."""
    found, true = _similarities(outputs, labels)
    pairs = np.triu_indices(len(found), k=1)
    return spearman(found[pairs], true[pairs])


def nearest_agreement(outputs: Sequence[OutputsByName], _: Sequence[Feed], labels: Labels) -> np.ndarray:
    """Of each sentence whether the most similar other one is float's."""
    found, true = (np.where(np.eye(len(s), dtype=bool), -np.inf, s) for s in _similarities(outputs, labels))
    agrees: np.ndarray = found.argmax(axis=1) == true.argmax(axis=1)
    return agrees


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation of ranks, from -1 to 1; 0 where one is constant.

    References:
        Spearman, "The Proof and Measurement of Association between Two Things", American J. of Psychology 15(1), 1904.
    """
    x, y = (ranks(values) - (len(values) - 1) / 2 for values in (a, b))
    norms = float(np.sqrt(np.square(x).sum() * np.square(y).sum()))
    return float(np.dot(x, y)) / norms if norms > 0 else 0.0


def ranks(values: np.ndarray) -> np.ndarray:
    """From 0; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[inverse]


def _similarities(outputs: Sequence[OutputsByName], labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    """Of every sentence to every other, the model's and float's, shape (n, n)."""
    name = next(name for name, array in outputs[0].items() if array.ndim == 2 and array.dtype.kind == "f")
    both = [np.concatenate([o[name] for o in outputs]), np.concatenate(list(labels[FLOAT_PREFIX + name]))]
    unit = [e / np.linalg.norm(e, axis=1, keepdims=True) for e in (b.astype(np.float64) for b in both)]
    return unit[0] @ unit[0].T, unit[1] @ unit[1].T


_METRICS = ("experiments.tasks.sentences:similarity_ranking", "experiments.tasks.sentences:nearest_agreement")
TASK = Task(models={"minilm_l3": (*_METRICS, "cosine@461"), "minilm_l6": (*_METRICS, "cosine")})

if __name__ == "__main__":
    sys.exit(main(TASK))
