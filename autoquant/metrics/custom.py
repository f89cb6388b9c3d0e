"""The user's own metrics: ``module:function(outputs, feeds, labels)``.

It returns a float; or an array of one score a sample, whose mean then is the value, and whose interval is cheaper and
better. It is given

- ``outputs[i][name]``: an output of the model, of sample ``i``;
- ``feeds[i][name]``: an input of it;
- ``labels[name][i]``: a label of it, from the data's arrays ``label*``;
- ``labels["float:NAME"][i]``: what the *float* model gives as output ``NAME``, for functions that compare with it;
  where the float model itself is evaluated, these are equal to ``outputs[i]["NAME"]``.

All cover the same samples in the same order, though not always all of the data: a search looks at some of them first,
and intervals come from leaving some out. Arrays are read-only, as others read them too. The module is imported in other
processes too, so its import should only define.
"""

import importlib
import numbers
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt

from autoquant.domain.feed import Feed
from autoquant.domain.metric import Custom, Metric
from autoquant.domain.mistakes import did_you_mean
from autoquant.domain.reason import one_line
from autoquant.errors import MetricError
from autoquant.runtime.modules import importable

__all__ = ["FLOAT_PREFIX", "Labels", "MetricFunction", "OutputsByName", "call", "load"]

FLOAT_PREFIX = "float:"
"""Before the name of an output, in ``labels``: what the float model gives."""

OutputsByName = Mapping[str, npt.NDArray[np.generic]]
Labels = Mapping[str, npt.NDArray[np.generic] | Sequence[npt.NDArray[np.generic]]]
MetricFunction = Callable[[Sequence[OutputsByName], Sequence[Feed], Labels], object]
Floats = npt.NDArray[np.float64]


def load(metric: Metric, source: Custom) -> MetricFunction:
    """Import the function of a metric.

    Raises:
        MetricError: The module cannot be imported or has no such function.
    """
    with importable(Path.cwd()):
        try:
            module = importlib.import_module(source.module)
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            raise MetricError(
                f"metric '{metric.name}': module '{source.module}' cannot be imported, put it right ({_reason(error)})"
            ) from error
    function = getattr(module, source.function, None)
    if not callable(function):
        hint = did_you_mean(source.function, _functions(module)) or ", define it"
        raise MetricError(f"metric '{metric.name}': module '{source.module}' has no function '{source.function}'{hint}")
    found: MetricFunction = function
    return found


def call(
    metric: Metric, function: MetricFunction, outputs: Sequence[OutputsByName], feeds: Sequence[Feed], labels: Labels
) -> float | Floats:
    """The value of a metric, or its score of each sample, shape (n,).

    Raises:
        MetricError: The function raises, or returns neither, or a number that is not finite.
    """
    where = f"metric '{metric.name}': {metric.source}"
    try:
        with importable(Path.cwd()):
            value = function(outputs, feeds, labels)
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise MetricError(f"{where} raised on {len(outputs)} samples, put it right ({_reason(error)})") from error
    found = _numbers(value, len(outputs))
    if found is None:
        raise MetricError(f"{where} returned a '{type(value).__name__}'{_shape(value)}, return a float or one a sample")
    if not np.isfinite(found).all():
        worst = found[~np.isfinite(found)][0]
        raise MetricError(f"{where} returned {worst} on {len(outputs)} samples, return finite numbers")
    return found if found.ndim else float(found)


def _numbers(value: object, n_samples: int) -> Floats | None:
    """As an array of shape () or (n_samples,); None for anything else."""
    if isinstance(value, numbers.Real):
        return np.array(value, np.float64)
    array = _array(value)
    if array is not None and array.dtype.kind in "biuf" and array.shape in ((), (n_samples,)):
        return array.astype(np.float64)
    return None


def _array(value: object) -> npt.NDArray[np.generic] | None:
    """None for what is none, such as lists of unlike lengths."""
    if isinstance(value, list | tuple | np.ndarray):
        with suppress(ValueError):
            return np.asarray(value)
    return None


def _shape(value: object) -> str:
    array = _array(value)
    return "" if array is None else f" of shape {array.shape}"


def _functions(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if callable(value)]


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {one_line(error)}"
