"""Train the embedded example and write its model and data to ``autoquant/examples``.

A small ResNet on scikit-learn's handwritten digits (1797 images of 8 x 8 pixels). It has what real exports have and a
search must cope with: convolutions followed by an unfused BatchNormalization, strided and residual blocks, inverted
residual blocks with depthwise convolutions, a squeeze-and-excitation gate, and a dynamic first dimension.

Everything is seeded and runs on one thread, so that the same machine and versions write the same bytes again::

    pip install '.[train]'
    python experiments/train_digits.py            # about five minutes on one core
    python experiments/train_digits.py --check    # trains into a temporary folder and compares the bytes
    python experiments/train_digits.py --bench    # what onnxruntime's own quantize_static makes of it: ratio, SNR
"""

import argparse
import hashlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

EXAMPLES = Path(__file__).resolve().parent.parent / "autoquant" / "examples"
FILES = ("digits.onnx", "digits_calibration.npz", "digits_evaluation.npz")
LIMIT_BYTES = 1_000_000

SEED = 20240
N_TEST = 397
N_CALIBRATION = 64
N_EVALUATION = 128
EPOCHS = 24
BATCH = 40
LEARNING_RATE = 4e-3
UPSAMPLING = 5
BN_EPSILON = 1e-5

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
State = dict[str, NDArray[np.float32]]


# --- the architecture: plain values, read by the torch network and by the ONNX graph alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One residual block.

    Attributes:
        name: Scope of its nodes, e.g. ``"stage1/block0"``.
        channels_in: Channels entering.
        channels_out: Channels leaving.
        stride: Stride of its spatial convolution.
        expansion: Hidden channels of an inverted residual with a depthwise convolution; 0 for a basic block.
        squeeze: Channels of the squeeze-and-excitation bottleneck; 0 for none.
    """

    name: str
    channels_in: int
    channels_out: int
    stride: int = 1
    expansion: int = 0
    squeeze: int = 0

    @property
    def has_shortcut(self) -> bool:
        """Whether the skip connection is a 1 x 1 convolution."""
        return self.stride != 1 or self.channels_in != self.channels_out


STEM_CHANNELS = 32
N_CLASSES = 10
BLOCKS = (
    Block(name="stage1/block0", channels_in=32, channels_out=32),
    Block(name="stage1/block1", channels_in=32, channels_out=32),
    Block(name="stage2/block0", channels_in=32, channels_out=64, stride=2),
    Block(name="stage2/block1", channels_in=64, channels_out=64, expansion=128, squeeze=16),
    Block(name="stage3/block0", channels_in=64, channels_out=64, stride=2),
    Block(name="stage3/block1", channels_in=64, channels_out=64, expansion=96),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvBn:
    """A convolution without bias, followed by a BatchNormalization, perhaps by a Relu."""

    name: str
    channels_in: int
    channels_out: int
    kernel: int
    stride: int = 1
    groups: int = 1
    relu: bool = True


def list_convs(block: Block) -> tuple[ConvBn, ...]:
    """The convolutions on the main path of a block."""
    name, hidden = block.name, block.expansion
    if hidden:
        return (
            ConvBn(name=f"{name}/expand", channels_in=block.channels_in, channels_out=hidden, kernel=1),
            ConvBn(
                name=f"{name}/depthwise",
                channels_in=hidden,
                channels_out=hidden,
                kernel=3,
                stride=block.stride,
                groups=hidden,
            ),
            ConvBn(name=f"{name}/project", channels_in=hidden, channels_out=block.channels_out, kernel=1, relu=False),
        )
    return (
        ConvBn(
            name=f"{name}/conv1",
            channels_in=block.channels_in,
            channels_out=block.channels_out,
            kernel=3,
            stride=block.stride,
        ),
        ConvBn(
            name=f"{name}/conv2", channels_in=block.channels_out, channels_out=block.channels_out, kernel=3, relu=False
        ),
    )


def make_stem() -> ConvBn:
    """The first convolution."""
    return ConvBn(name="stem", channels_in=1, channels_out=STEM_CHANNELS, kernel=3)


def make_shortcut(block: Block) -> ConvBn:
    """The convolution on the skip connection of a block that changes the shape."""
    return ConvBn(
        name=f"{block.name}/shortcut",
        channels_in=block.channels_in,
        channels_out=block.channels_out,
        kernel=1,
        stride=block.stride,
        relu=False,
    )


# --- data


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


# --- training


class ConvBnModule(nn.Module):
    """The torch side of ``ConvBn``."""

    def __init__(self, spec: ConvBn) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            spec.channels_in,
            spec.channels_out,
            spec.kernel,
            stride=spec.stride,
            padding=spec.kernel // 2,
            groups=spec.groups,
            bias=False,
        )
        self.bn = nn.BatchNorm2d(spec.channels_out, eps=BN_EPSILON)
        self.relu = spec.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve, normalize, perhaps rectify."""
        y: torch.Tensor = self.bn(self.conv(x))
        return functional.relu(y) if self.relu else y


class Gate(nn.Module):
    """Squeeze-and-excitation."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, squeeze, 1)
        self.excite = nn.Conv2d(squeeze, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale each channel by a number that the means of all channels decide."""
        pooled = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.excite(functional.relu(self.reduce(pooled))))


class BlockModule(nn.Module):
    """The torch side of ``Block``."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        convs = list_convs(block)
        self.names = [spec.name.rsplit("/", 1)[1] for spec in convs]
        modules = [ConvBnModule(spec) for spec in convs]
        for name, module in zip(self.names, modules, strict=True):
            self.add_module(name, module)
        self.se = Gate(block.expansion, block.squeeze) if block.squeeze else None
        self.shortcut = ConvBnModule(make_shortcut(block)) if block.has_shortcut else None
        nn.init.zeros_(modules[-1].bn.weight)  # every block starts as the identity

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what the block computes to its input."""
        y = x
        for name in self.names[:-1]:
            y = self.get_submodule(name)(y)
        y = self.get_submodule(self.names[-1])(y if self.se is None else self.se(y))
        return functional.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class Network(nn.Module):
    """The whole network, images to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBnModule(make_stem())
        self.blocks = nn.ModuleList(BlockModule(block) for block in BLOCKS)
        self.head = nn.Linear(BLOCKS[-1].channels_out, N_CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of images."""
        x = functional.interpolate(x, scale_factor=UPSAMPLING, mode="bilinear", align_corners=False)
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(x.mean((2, 3)))
        return logits

    def read_state(self) -> State:
        """Parameters and running statistics by scope, e.g. ``"stage1/block0/conv1/bn/weight"``."""
        scopes = {f"blocks.{number}.": f"{block.name}/" for number, block in enumerate(BLOCKS)}
        state = {}
        for key, value in self.state_dict().items():
            prefix = next((prefix for prefix in scopes if key.startswith(prefix)), "")
            state[(scopes.get(prefix, "") + key.removeprefix(prefix)).replace(".", "/")] = value.numpy()
        return state


def distort(x: torch.Tensor) -> torch.Tensor:
    """Turn, scale and shift each image a little."""
    angle, scale = (torch.rand(2, len(x)) - 0.5) * torch.tensor([[0.45], [0.25]])
    cos, sin = torch.cos(angle) * (1 + scale), torch.sin(angle) * (1 + scale)
    dx, dy = (torch.rand(2, len(x)) - 0.5) * 0.4
    theta = torch.stack([torch.stack([cos, -sin, dx], 1), torch.stack([sin, cos, dy], 1)], 1)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, align_corners=False)


def train(samples: Samples, *, epochs: int) -> State:
    """Train the network for a fixed number of epochs; the test part is never looked at."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    network = Network()
    image, label = torch.from_numpy(samples.image), torch.from_numpy(samples.label)
    n_batches = len(samples) // BATCH
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=5e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=epochs * n_batches, pct_start=0.2
    )
    network.train()
    for epoch in range(epochs):
        order, losses, started = torch.randperm(len(samples)), [], time.perf_counter()
        for step in range(n_batches):
            rows = order[step * BATCH : (step + 1) * BATCH]
            x = distort(image[rows]) if epoch < epochs - 2 else image[rows]  # the statistics end on undistorted images
            loss = functional.cross_entropy(network(x), label[rows], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        seconds = time.perf_counter() - started
        print(f"epoch {epoch + 1:2}/{epochs}: loss {np.mean(losses):.4f}, {seconds:.1f} s", flush=True)
    return network.read_state()


# --- export


@dataclass(slots=True)
class Graph:
    """An ONNX graph in the making; tensors are named after the node that makes them."""

    state: State
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)

    def add_node(self, scope: str, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node named ``/scope/op_type`` and return its output."""
        name = f"/{scope}/{op_type}"
        output = f"{name}_output_0"
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], name=name, **attributes))
        return output

    def add_constant(self, name: str, value: NDArray[np.generic]) -> str:
        """Add an initializer."""
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add_parameter(self, key: str) -> str:
        """Add a trained parameter under its dotted name."""
        return self.add_constant(key.replace("/", "."), self.state[key])

    def add_conv(self, spec: ConvBn, x: str) -> str:
        """Add Conv, BatchNormalization and perhaps Relu, unfused as an exporter leaves them."""
        x = self.add_node(
            f"{spec.name}/conv",
            "Conv",
            [x, self.add_parameter(f"{spec.name}/conv/weight")],
            kernel_shape=[spec.kernel] * 2,
            strides=[spec.stride] * 2,
            pads=[spec.kernel // 2] * 4,
            dilations=[1, 1],
            group=spec.groups,
        )
        statistics = [
            self.add_parameter(f"{spec.name}/bn/{key}") for key in ("weight", "bias", "running_mean", "running_var")
        ]
        x = self.add_node(f"{spec.name}/bn", "BatchNormalization", [x, *statistics], epsilon=BN_EPSILON)
        return self.add_node(spec.name, "Relu", [x]) if spec.relu else x

    def add_gate(self, scope: str, x: str) -> str:
        """Add a squeeze-and-excitation gate."""
        y = self.add_node(scope, "GlobalAveragePool", [x])
        for layer, activation in (("reduce", "Relu"), ("excite", "Sigmoid")):
            parameters = [self.add_parameter(f"{scope}/{layer}/{key}") for key in ("weight", "bias")]
            y = self.add_node(f"{scope}/{layer}", "Conv", [y, *parameters], kernel_shape=[1, 1])
            y = self.add_node(scope, activation, [y])
        return self.add_node(scope, "Mul", [x, y])

    def add_block(self, block: Block, x: str) -> str:
        """Add a residual block."""
        *body, last = list_convs(block)
        y = x
        for spec in body:
            y = self.add_conv(spec, y)
        if block.squeeze:
            y = self.add_gate(f"{block.name}/se", y)
        y = self.add_conv(last, y)
        skip = self.add_conv(make_shortcut(block), x) if block.has_shortcut else x
        return self.add_node(block.name, "Relu", [self.add_node(block.name, "Add", [y, skip])])


def make_model(state: State) -> onnx.ModelProto:
    """The ONNX model of trained parameters: ``image`` (batch, 1, 8, 8) to ``logits`` (batch, 10), opset 21."""
    graph = Graph(state)
    scales = graph.add_constant("upsample.scales", np.array([1, 1, UPSAMPLING, UPSAMPLING], np.float32))
    x = graph.add_node(
        "upsample", "Resize", ["image", "", scales], mode="linear", coordinate_transformation_mode="half_pixel"
    )
    x = graph.add_conv(make_stem(), x)
    for block in BLOCKS:
        x = graph.add_block(block, x)
    x = graph.add_node("head", "GlobalAveragePool", [x])
    x = graph.add_node("head", "Flatten", [x], axis=1)
    head = [graph.add_parameter(f"head/{key}") for key in ("weight", "bias")]
    graph.nodes.append(helper.make_node("Gemm", [x, *head], ["logits"], name="/head/Gemm", transB=1))
    onnx_graph = helper.make_graph(
        graph.nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", N_CLASSES])],
        graph.initializers,
    )
    model = helper.make_model(
        onnx_graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10, producer_name="train_digits"
    )
    model.doc_string = "Small ResNet on scikit-learn's handwritten digits; made by experiments/train_digits.py"
    onnx.checker.check_model(model, full_check=True)
    return model


# --- what is printed


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


def compute_accuracy(session: ort.InferenceSession, samples: Samples) -> float:
    """Share of the images whose largest logit is their digit."""
    return float(np.mean(compute_logits(session, samples.image).argmax(1) == samples.label))


def bench(folder: Path, rounds: int = 300) -> None:
    """Quantize with onnxruntime's own tool, uniformly and with layers left out, and print latency ratios and SNR."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self, image: FloatArray) -> None:
            self.feeds: Iterator[dict[str, FloatArray]] = iter([{"image": image[i : i + 1]} for i in range(len(image))])

        def get_next(self) -> dict[str, FloatArray] | None:
            return next(self.feeds, None)

    calibration, evaluation = (np.load(folder / name) for name in FILES[1:])
    image, label = evaluation["image"], evaluation["label"]
    with tempfile.TemporaryDirectory() as scratch:
        prepared = Path(scratch, "prepared.onnx")
        quant_pre_process(str(folder / FILES[0]), str(prepared), skip_symbolic_shape=True)
        names = [node.name for node in onnx.load(prepared).graph.node]
        scopes = ["/upsample", "/stem", *(f"/{block.name}" for block in BLOCKS), "/head"]
        left_out = {"uniform": (), **{f"without {scope}": (scope,) for scope in scopes}}
        left_out |= {f"without {' '.join(scopes[:n])}": tuple(scopes[:n]) for n in (2, 3)}
        left_out |= {f"without {' '.join(scopes[-n:])}": tuple(scopes[-n:]) for n in (2, 3, 4, 5)}
        left_out["without stem se depthwise head"] = ("/stem", "/stage2/block1", "/stage3/block1", "/head")
        left_out["only stage1"] = tuple(scope for scope in scopes if "stage1" not in scope)
        sessions = {"float": open_session(folder / FILES[0])}
        for name, prefixes in left_out.items():
            target = Path(scratch, "quantized.onnx")
            quantize_static(
                str(prepared),
                str(target),
                Reader(calibration["image"]),
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                per_channel=True,
                nodes_to_exclude=[node for node in names if any(node.startswith(prefix) for prefix in prefixes)],
            )
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
        print(f"{name} accuracy {compute_accuracy(session, part):.4f} of {len(part)}")


def compute_digests(folder: Path) -> dict[str, str]:
    """The sha256 of each file."""
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}


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
