"""The images: scikit-learn's digits without exact duplicates, in a training and a test part."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

__all__ = ["SEED", "FloatArray", "IntArray", "Samples", "load_samples"]

SEED = 20240
N_TEST = 397

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Images in [0, 1], shape ``(n, 1, 8, 8)``, and their digits, shape ``(n,)``."""

    image: FloatArray
    label: IntArray

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: NDArray[np.intp] | slice) -> "Samples":
        """Some of the samples."""
        return Samples(image=self.image[rows], label=self.label[rows])

    def save(self, path: Path) -> None:
        """Write ``image`` and ``label``; numpy gives zip members a fixed date, so equal samples give equal bytes."""
        np.savez_compressed(path, image=self.image, label=self.label)


def load_samples() -> tuple[Samples, Samples]:
    """All digits without exact duplicates, shuffled by the seed: the training part and the test part."""
    digits = load_digits()
    image = (digits.images / 16.0).astype(np.float32)[:, None]
    _, first = np.unique(image.reshape(len(image), -1), axis=0, return_index=True)
    rows = np.random.default_rng(SEED).permutation(np.sort(first))
    samples = Samples(image=image[rows], label=digits.target[rows].astype(np.int64))
    return samples.take(slice(N_TEST, None)), samples.take(slice(0, N_TEST))
