"""What a user can put right; each error is one sentence: what, where, what to do."""

__all__ = [
    "AutoquantError",
    "DataError",
    "DiskFullError",
    "MetricError",
    "ModelError",
    "OutputError",
    "ProfileError",
    "SamplerError",
    "SpaceError",
    "TargetError",
    "UsageError",
]


class AutoquantError(Exception):
    """Base of every error that the user can put right; the command ends with exit code 2."""


class ModelError(AutoquantError):
    """The model is missing, not ONNX, invalid, or already quantized."""


class DataError(AutoquantError):
    """Calibration or evaluation data do not fit the model."""


class MetricError(AutoquantError):
    """A metric is spelled wrong, does not fit the model or its labels, or gives no number."""


class SamplerError(AutoquantError):
    """A sampler of Optuna or of the user's own raised an error."""


class SpaceError(AutoquantError):
    """A search space file names something unknown or contradicts itself."""


class TargetError(AutoquantError):
    """An execution provider or an option of it is not available here."""


class OutputError(AutoquantError):
    """The output folder holds another run, or cannot be written."""


class DiskFullError(OutputError):
    """There is no room for what is to be written."""


class UsageError(AutoquantError):
    """An argument is out of its range."""


class ProfileError(AutoquantError):
    """Kernel times cannot be written or read; a search goes on without them."""
