"""Inferences with what they read and write already where the execution provider wants it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from autoquant.domain.feed import Feed
from autoquant.runtime.session import Session

__all__ = ["DeviceSession", "HostInference", "Inference", "on_device"]

_DEVICES = {
    "CUDAExecutionProvider": "cuda",
    "TensorrtExecutionProvider": "cuda",
    "NvTensorRTRTXExecutionProvider": "cuda",
    "DmlExecutionProvider": "dml",
    "CANNExecutionProvider": "cann",
}
"""What onnxruntime's I/O binding calls the memory of a provider; all others take and give the CPU's."""


class Inference(Protocol):
    """One feed that is ready to be run, as often as wanted."""

    def run(self) -> None:
        """All that counts as latency."""

    @property
    def outputs(self) -> list[npt.NDArray[np.generic]]:
        """Of the last run, by position, in the CPU's memory."""


@dataclass(slots=True)
class HostInference:
    """Reads and writes the CPU's memory."""

    session: Session
    feed: Feed
    outputs: list[npt.NDArray[np.generic]] = field(default_factory=list)

    def run(self) -> None:
        """Plainly."""
        self.outputs = self.session.run(None, self.feed)


@dataclass(slots=True)
class _DeviceInference:
    """Reads and writes the provider's memory; copies from and to the CPU's are made before and after the run."""

    session: ort.InferenceSession
    binding: ort.IOBinding

    def run(self) -> None:
        """Until the device has finished."""
        self.session.run_with_iobinding(self.binding)
        self.binding.synchronize_outputs()

    @property
    def outputs(self) -> list[npt.NDArray[np.generic]]:
        """Copied from the device."""
        found: list[npt.NDArray[np.generic]] = self.binding.copy_outputs_to_cpu()
        return found


@dataclass(frozen=True, slots=True)
class DeviceSession:
    """A session whose provider has a memory of its own.

    Attributes:
        session: Of onnxruntime.
        device_type: What I/O binding calls that memory.
        device_id: Which one.
    """

    session: ort.InferenceSession
    device_type: str
    device_id: int = 0

    def run(self, output_names: Sequence[str] | None, input_feed: Feed) -> list[npt.NDArray[np.generic]]:
        """Outputs by position, copies included."""
        found: list[npt.NDArray[np.generic]] = self.session.run(output_names, input_feed)
        return found

    def ready(self, feed: Feed) -> Inference:
        """The feed copied once to where its readers are, outputs bound to the device."""
        binding = self.session.io_binding()
        for name, values in feed.items():
            binding.bind_cpu_input(name, np.require(values, requirements="C"))
        for output in self.session.get_outputs():
            binding.bind_output(output.name, self.device_type, self.device_id)
        binding.synchronize_inputs()
        return _DeviceInference(self.session, binding)


def on_device(session: ort.InferenceSession) -> Session:
    """The session itself where its first provider uses the CPU's memory, or not only tensors come out."""
    provider = session.get_providers()[0]
    if provider not in _DEVICES or not all(output.type.startswith("tensor(") for output in session.get_outputs()):
        found: Session = session
        return found
    device_id = int(session.get_provider_options()[provider].get("device_id", 0))
    return DeviceSession(session, _DEVICES[provider], device_id)
