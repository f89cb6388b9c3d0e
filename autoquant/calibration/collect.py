"""Observes activations while a session runs the calibration samples."""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from autoquant.calibration.channels import Channels
from autoquant.domain.feed import Feed, sample_name
from autoquant.domain.region import TensorName
from autoquant.domain.statistics import MASK, N_BINS, N_HALF, Statistics, TensorStatistics
from autoquant.errors import DataError
from autoquant.runtime.samples import refuse_non_finite, run_sample
from autoquant.runtime.session import Session

__all__ = ["collect"]

_CHUNK = 1 << 17
"""Values binned at once: a chunk and what is made of it stay in cache, and calls into numpy cost little beside it."""

_MOST_COUNTED = 1 << 18
"""Values of one tensor in one sample that are counted at most, roughly: what further samples hold differs from that,
what lies between these values hardly does. Extremes are those of all."""
_N_LANES = 2
"""Counters of each bin: one that is counted up twice in a row waits for itself, and many activations are zero."""
_FEW = 1 << 14
"""Values so few that clearing and adding up further counters takes longer than waiting."""
_SMALLEST_LIMIT = 2.0**-100
"""Of a tensor whose values are all smaller; below it ``N_HALF / limit`` would leave float32."""

_Arrays = deque[tuple[TensorName, npt.NDArray[np.generic]]]


def collect(
    session: Session,
    tensors: Sequence[TensorName],
    feeds: Iterable[Feed],
    *,
    digest: str,
    channel_axes: Mapping[TensorName, int] | None = None,
    finite: Collection[TensorName] = (),
    names: Sequence[str] = (),
    on_sample: Callable[[int], None] | None = None,
) -> Statistics:
    """Run every sample once and keep a histogram of each tensor, and of some the extremes and means of their channels.

    Extremes are those of all values; in the histogram of a tensor with very many in a sample every n-th counts for n.

    The statistics of a sample are taken in a second thread while the session runs the next one; then both threads share
    what is left. So two samples are in memory at any time, however many there are.

    Args:
        session: Has all that is observed among its outputs, apart from what is a graph input.
        tensors: Activations to observe, float32 or float16; shapes may differ from sample to sample.
        feeds: The samples, taken one at a time.
        digest: Of model and samples, kept in the result.
        channel_axes: Axis of the channels, of the tensors whose channels are observed one by one, among ``tensors`` or
            not; the number of channels is the same in every sample.
        finite: Outputs of the model that hold a finite number somewhere where a sample is sound.
        names: What messages call the samples; their places by default.
        on_sample: Told in the calling thread how many samples the session has run.

    Returns:
        Statistics of each of ``tensors``, the same for any order of the samples. Of a tensor that never held a value
        below ``MASK`` in magnitude they are those of a tensor without values: minimum, maximum and limit are 0.

    Raises:
        DataError: There is no sample, onnxruntime cannot run one, or one of ``finite`` holds no number.
    """
    histograms = {tensor: _Histogram() for tensor in tensors}
    channels = {tensor: Channels(axis) for tensor, axis in (channel_axes or {}).items()}
    observed, checked = tuple(dict.fromkeys([*histograms, *channels, *finite])), frozenset(finite)
    own_scratch, its_scratch = _Scratch(), _Scratch()
    n_samples = 0
    pending: Future[None] | None = None
    left: _Arrays = deque()
    with ThreadPoolExecutor(max_workers=1) as pool:
        for feed in feeds:
            sample = sample_name(names, n_samples)
            arrays = _run(session, observed, feed, sample)
            if pending is not None:
                _observe(histograms, channels, left, own_scratch)
                pending.result()
            refuse_non_finite(((name, array) for name, array in arrays if name in checked), sample)
            left = arrays
            pending = pool.submit(_observe, histograms, channels, left, its_scratch)
            n_samples += 1
            if on_sample is not None:
                on_sample(n_samples)
        if pending is None:
            raise DataError("there is no calibration sample, give at least one")
        _observe(histograms, channels, left, own_scratch)
        pending.result()
    return Statistics(
        tensors={tensor: histogram.statistics() for tensor, histogram in histograms.items()},
        channels={tensor: channel.statistics() for tensor, channel in channels.items()},
        digest=digest,
        n_samples=n_samples,
    )


def _run(session: Session, tensors: Sequence[TensorName], feed: Feed, sample: str) -> _Arrays:
    fetched = [tensor for tensor in tensors if tensor not in feed]
    # onnxruntime takes an empty list of outputs for all of them.
    found = run_sample(session, feed, sample, output_names=fetched) if fetched else []
    arrays = dict(zip(fetched, found, strict=True))
    return deque((tensor, arrays[tensor] if tensor in arrays else feed[tensor]) for tensor in tensors)


def _observe(
    histograms: Mapping[TensorName, "_Histogram"],
    channels: Mapping[TensorName, Channels],
    arrays: _Arrays,
    scratch: "_Scratch",
) -> None:
    """Add what is left of a sample.

    Arrays are taken out, so that they are free when this returns and not when the thread lets go of its arguments.
    """
    while True:
        try:
            tensor, array = arrays.popleft()
        except IndexError:  # the other thread took the last one
            return
        values = array.astype(np.float32, copy=False)
        if tensor in histograms:
            _count(histograms[tensor], values.reshape(-1), scratch)
        if tensor in channels:
            with np.errstate(invalid="ignore"):  # the mean of a channel that holds infinities is none
                channels[tensor].add(values)


def _count(histogram: "_Histogram", values: npt.NDArray[np.float32], scratch: "_Scratch") -> None:
    """Add the values chunk by chunk."""
    step = _step(values.size)
    for start in range(0, values.size, _CHUNK):
        histogram.add(values[start : start + _CHUNK], scratch, step, -start % step)


def _step(size: int) -> int:
    """From one value that is counted to the next: no divisor of any axis, so that none is left out along it."""
    step = -(-size // _MOST_COUNTED)
    while math.gcd(step, size) > 1:
        step += 1
    return step


class _Scratch:
    """Arrays that every chunk is binned in; allocating them anew costs more than the arithmetic."""

    def __init__(self) -> None:
        self.is_zero = np.empty(_CHUNK, np.bool_)
        self.floats = np.empty(_CHUNK, np.float32)
        self.int32 = np.empty(_CHUNK, np.int32)
        self.bins = np.empty(_CHUNK, np.intp)
        self.lanes = (N_HALF + N_BINS * (np.arange(_CHUNK) % _N_LANES)).astype(np.float32)


class _Histogram:
    """Statistics that grow; an edge of a bin is an edge for every smaller limit, so chunks may come in any order."""

    def __init__(self) -> None:
        self._minimum = math.inf
        self._maximum = -math.inf
        self._limit = 0.0
        self._counts = np.zeros(N_BINS, np.int64)
        self._n_zeros = 0
        self._n_masked = 0

    def add(self, values: npt.NDArray[np.float32], scratch: _Scratch, step: int, first: int) -> None:
        """Count every ``step``-th of 1 to ``_CHUNK`` values for as many, from the ``first`` on; masked ones apart."""
        low, high = float(values.min()), float(values.max())
        if not (low > -MASK and high < MASK):  # with NaN in it neither is true
            unmasked = values[np.abs(values) < MASK]
            self._n_masked += values.size - unmasked.size
            if not unmasked.size:
                return
            values, low, high = unmasked, float(unmasked.min()), float(unmasked.max())
        self._minimum = min(self._minimum, low)
        self._maximum = max(self._maximum, high)
        if low == high == 0:
            self._n_zeros += values.size
            return
        self._widen(max(-low, high))
        some = values[first::step]
        is_telling = some.size > 0 and some.any()  # hardly any may be unmasked, or other than 0
        self._count(*((some, scratch, step) if is_telling else (values, scratch, 1)))

    def _widen(self, magnitude: float) -> None:
        limit = max(math.ldexp(1.0, math.frexp(magnitude)[1]), _SMALLEST_LIMIT)
        if self._limit == 0:
            self._limit = limit
        while self._limit < limit:
            pairs = self._counts.reshape(N_HALF, 2).sum(axis=1)
            self._counts[:] = 0
            self._counts[N_HALF // 2 : N_HALF // 2 + N_HALF] = pairs
            self._limit *= 2

    def _count(self, values: npt.NDArray[np.float32], scratch: _Scratch, weight: int) -> None:
        n = values.size
        is_zero, floats, int32, bins = scratch.is_zero[:n], scratch.floats[:n], scratch.int32[:n], scratch.bins[:n]
        n_zeros = int(np.count_nonzero(np.equal(values, 0, out=is_zero)))
        # The product is exact, apart from underflow (2^-126 beside values above 1), and the floor is taken before the
        # sum could round. numpy has vector code for float32 to int32 and int32 to int64, but not for float32 to int64.
        np.multiply(values, np.float32(N_HALF / self._limit), out=floats)
        np.floor(floats, out=floats)
        n_lanes = 1 if n <= _FEW else _N_LANES
        np.add(floats, scratch.lanes[:n] if n_lanes > 1 else np.float32(N_HALF), out=floats)
        np.copyto(int32, floats, casting="unsafe")
        np.copyto(bins, int32)
        counts = np.bincount(bins, minlength=n_lanes * N_BINS).reshape(n_lanes, N_BINS).sum(axis=0)
        counts[N_HALF] -= n_zeros
        self._counts += weight * counts
        self._n_zeros += weight * n_zeros

    def statistics(self) -> TensorStatistics:
        """What was counted so far."""
        is_empty = self._minimum > self._maximum
        return TensorStatistics(
            # The sum makes -0.0 a plain 0.0, whichever came first.
            minimum=0.0 if is_empty else self._minimum + 0.0,
            maximum=0.0 if is_empty else self._maximum + 0.0,
            limit=self._limit,
            counts=self._counts,
            n_zeros=self._n_zeros,
            n_masked=self._n_masked,
        )
