"""The three files of the example, and what the model in them computes."""

import hashlib
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

__all__ = ["EXAMPLES", "FILES", "LIMIT_BYTES", "compute_accuracy", "compute_digests", "compute_logits", "open_session"]

EXAMPLES = Path(__file__).resolve().parents[2] / "autoquant" / "examples"
FILES = ("digits.onnx", "digits_calibration.npz", "digits_evaluation.npz")
LIMIT_BYTES = 1_000_000
FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]


def open_session(model: bytes | Path) -> ort.InferenceSession:
    """Open a model on the CPU provider with one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    source = model if isinstance(model, bytes) else str(model)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def compute_logits(session: ort.InferenceSession, image: FloatArray) -> FloatArray:
    """Logits, one image at a time."""
    return np.concatenate([session.run(None, {"image": image[i : i + 1]})[0] for i in range(len(image))])


def compute_accuracy(session: ort.InferenceSession, image: FloatArray, label: IntArray) -> float:
    """Share of the images whose largest logit is their digit."""
    return float(np.mean(compute_logits(session, image).argmax(1) == label))


def compute_digests(folder: Path) -> dict[str, str]:
    """The sha256 of each file."""
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}
