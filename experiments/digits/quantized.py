"""What onnxruntime's own quantize_static makes of the model: latency ratios and SNR."""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from experiments.digits.architecture import BLOCKS
from experiments.digits.files import FILES, compute_logits, open_session

__all__ = ["bench"]

FloatArray = NDArray[np.float32]


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Gives one image after the other."""

    def __init__(self, image: FloatArray) -> None:
        self.feeds: Iterator[dict[str, FloatArray]] = iter([{"image": image[i : i + 1]} for i in range(len(image))])

    def get_next(self) -> dict[str, FloatArray] | None:
        """None behind the last."""
        return next(self.feeds, None)


def bench(folder: Path, rounds: int = 300) -> None:
    """Quantize with onnxruntime's own tool, uniformly and with layers left out, and print latency ratios and SNR."""
    calibration, evaluation = (np.load(folder / name) for name in FILES[1:])
    image, label = evaluation["image"], evaluation["label"]
    sessions = {"float": open_session(folder / FILES[0])}
    with tempfile.TemporaryDirectory() as scratch:
        prepared, target = Path(scratch, "prepared.onnx"), Path(scratch, "quantized.onnx")
        quant_pre_process(str(folder / FILES[0]), str(prepared), skip_symbolic_shape=True)
        for name, scopes in left_out().items():
            quantize(prepared, target, scopes, calibration["image"])
            sessions[name] = open_session(target)
        times = time_interleaved(list(sessions.values()), image[:1], rounds)
    reference = compute_logits(sessions["float"], image)
    print(f"float: {np.median(times[:, 0]):.3f} ms, evaluation accuracy {np.mean(reference.argmax(1) == label):.4f}")
    for column, (name, session) in enumerate(sessions.items()):
        logits = compute_logits(session, image)
        noise = np.sum((reference - logits) ** 2, dtype=np.float64)
        snr_db = 10 * np.log10(np.sum(reference**2, dtype=np.float64) / noise) if noise else np.inf
        ratio = np.median(times[:, column] / times[:, 0])
        accuracy = np.mean(logits.argmax(1) == label)
        print(f"ratio {ratio:.3f}  SNR {snr_db:5.1f} dB  accuracy {accuracy:.4f}  {name}")


def left_out() -> Mapping[str, Sequence[str]]:
    """Scopes that stay float, by what that is called."""
    scopes = ["/upsample", "/stem", *(f"/{block.name}" for block in BLOCKS), "/head"]
    found: dict[str, Sequence[str]] = {"uniform": (), **{f"without {scope}": (scope,) for scope in scopes}}
    for part in (*(scopes[:n] for n in (2, 3)), *(scopes[-n:] for n in (2, 3, 4, 5))):
        found[f"without {' '.join(part)}"] = part
    found["without stem se depthwise head"] = ("/stem", "/stage2/block1", "/stage3/block1", "/head")
    found["only stage1"] = [scope for scope in scopes if "stage1" not in scope]
    return found


def quantize(prepared: Path, target: Path, scopes: Sequence[str], image: FloatArray) -> None:
    """Per channel, u8 activations and s8 weights, without the nodes of some scopes."""
    names = [node.name for node in onnx.load(prepared).graph.node]
    quantize_static(
        str(prepared),
        str(target),
        Reader(image),
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
        nodes_to_exclude=[name for name in names if any(name.startswith(scope) for scope in scopes)],
    )


def time_interleaved(sessions: Sequence[ort.InferenceSession], image: FloatArray, rounds: int) -> NDArray[np.float64]:
    """Milliseconds, shape ``(rounds, sessions)``; a round runs each session once to warm up, three times timed."""
    times = np.empty((rounds, len(sessions)))
    for row in times:
        for column, session in enumerate(sessions):
            session.run(None, {"image": image})
            started = time.perf_counter()
            for _ in range(3):
                session.run(None, {"image": image})
            row[column] = (time.perf_counter() - started) * 1e3 / 3
    return times
