"""I/O binding, seen through a session that writes down its calls and through a real one in the CPU's memory."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from autoquant.domain.target import Target
from autoquant.runtime.binding import DeviceSession, HostInference, on_device
from autoquant.runtime.session import open_session
from autoquant.runtime.streams import in_streams, ready
from tests.models import a_convnet, feed_of, floats


@dataclass
class Recorded:
    """A session and its binding at once; ``calls`` says what was asked of them."""

    provider: str = "CUDAExecutionProvider"
    options: dict[str, str] = field(default_factory=lambda: {"device_id": "1"})
    type: str = "tensor(float)"
    calls: list[str] = field(default_factory=list)

    def get_providers(self) -> list[str]:
        return [self.provider, "CPUExecutionProvider"]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {self.provider: self.options, "CPUExecutionProvider": {}}

    def io_binding(self) -> "Recorded":
        return self

    def get_outputs(self) -> list["Recorded"]:
        return [self]

    @property
    def name(self) -> str:
        return "y"

    def bind_cpu_input(self, name: str, values: np.ndarray[Any, Any]) -> None:
        assert values.flags.c_contiguous
        self.calls.append(f"input {name}")

    def bind_output(self, name: str, device_type: str, device_id: int) -> None:
        self.calls.append(f"output {name} {device_type} {device_id}")

    def synchronize_inputs(self) -> None:
        self.calls.append("copied")

    def run_with_iobinding(self, binding: "Recorded") -> None:
        assert binding is self
        self.calls.append("run")

    def synchronize_outputs(self) -> None:
        self.calls.append("finished")

    def copy_outputs_to_cpu(self) -> list[np.ndarray[Any, Any]]:
        self.calls.append("fetched")
        return [floats(2)]


FEED = {"x": floats(4, 3).T}


def test_copies_are_made_before_and_after_the_runs() -> None:
    session = Recorded()
    inference = ready(on_device(session), FEED)
    assert session.calls == ["input x", "output y cuda 1", "copied"]
    inference.run()
    inference.run()
    assert session.calls[3:] == ["run", "finished"] * 2
    np.testing.assert_array_equal(inference.outputs[0], floats(2))
    assert session.calls[-1] == "fetched"


def test_each_stream_has_a_binding_of_its_own() -> None:
    session = Recorded("DmlExecutionProvider", {})
    inference = ready(in_streams(on_device(session), 3), FEED)
    assert session.calls == ["input x", "output y dml 0", "copied"] * 3
    inference.run()
    assert session.calls.count("run") == 3


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "OpenVINOExecutionProvider"])
def test_a_provider_in_the_memory_of_the_cpu_is_run_plainly(provider: str) -> None:
    assert isinstance(ready(on_device(Recorded(provider)), FEED), HostInference)


def test_what_gives_a_sequence_is_run_plainly() -> None:
    assert isinstance(ready(on_device(Recorded(type="seq(tensor(float))")), FEED), HostInference)


def test_a_real_session_gives_the_same_outputs_bound_and_plain() -> None:
    session = open_session(a_convnet().SerializeToString(), Target())
    feed = feed_of(a_convnet())
    (plain,) = session.run(None, feed)
    bound = DeviceSession(session, "cpu")
    inference = ready(bound, feed)
    for _ in range(2):
        inference.run()
    np.testing.assert_array_equal(inference.outputs[0], plain)
    np.testing.assert_array_equal(bound.run(None, feed)[0], plain)
