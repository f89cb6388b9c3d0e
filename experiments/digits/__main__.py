"""Train the embedded example and write its model and data to ``autoquant/examples``.

A small ResNet on scikit-learn's handwritten digits (1797 images of 8 x 8 pixels), with a dynamic first dimension.
Everything is seeded and runs on one thread, so that the same machine and versions write the same bytes again::

    pip install '.[train]'
    python -m experiments.digits            # about five minutes on one core
    python -m experiments.digits --check    # trains into a temporary folder and compares the bytes
    python -m experiments.digits --bench    # what onnxruntime's own quantize_static makes of it: ratio, SNR
"""

import argparse
import tempfile
from pathlib import Path

from experiments.digits.data import load_samples
from experiments.digits.export import make_model
from experiments.digits.files import EXAMPLES, FILES, LIMIT_BYTES, compute_accuracy, compute_digests, open_session
from experiments.digits.quantized import bench
from experiments.digits.training import EPOCHS, train

N_CALIBRATION = 64
N_EVALUATION = 128


def write(folder: Path, *, epochs: int) -> None:
    """Train and write the three files, print what they are."""
    training, test = load_samples()
    calibration, evaluation = training.take(slice(0, N_CALIBRATION)), test.take(slice(0, N_EVALUATION))
    model = make_model(train(training, epochs=epochs)).SerializeToString(deterministic=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILES[0]).write_bytes(model)
    calibration.save(folder / FILES[1])
    evaluation.save(folder / FILES[2])
    session = open_session(model)
    for name, part in (("training", training), ("test", test), ("evaluation", evaluation)):
        print(f"{name} accuracy {compute_accuracy(session, part.image, part.label):.4f} of {len(part)}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Train the embedded example and write its model and data.")
    parser.add_argument("--out", type=Path, default=EXAMPLES, help="folder for the three files")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--check", action="store_true", help="train again and compare with the files in --out")
    parser.add_argument(
        "--bench", action="store_true", help="measure onnxruntime's own quantization of the files in --out"
    )
    arguments = parser.parse_args()
    if arguments.check:
        with tempfile.TemporaryDirectory() as scratch:
            write(Path(scratch), epochs=arguments.epochs)
            same = compute_digests(Path(scratch)) == compute_digests(arguments.out)
        print("the bytes are the same" if same else "the bytes differ")
        return 0 if same else 1
    if arguments.bench:
        bench(arguments.out)
        return 0
    write(arguments.out, epochs=arguments.epochs)
    sizes = {name: (arguments.out / name).stat().st_size for name in FILES}
    for name, digest in compute_digests(arguments.out).items():
        print(f"{name}: {sizes[name]:,} bytes, sha256 {digest}")
    total = sum(sizes.values())
    print(f"together {total:,} bytes, limit {LIMIT_BYTES:,}")
    return 0 if total < LIMIT_BYTES else 1


if __name__ == "__main__":
    raise SystemExit(main())
