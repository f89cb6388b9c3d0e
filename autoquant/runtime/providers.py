"""Execution providers that are installed here."""

from collections.abc import Iterable

import onnxruntime as ort

from autoquant.errors import TargetError

__all__ = ["installed", "known", "provider_of", "runtime_version"]

_SUFFIX = "ExecutionProvider"


def installed() -> tuple[str, ...]:
    """Short names of the execution providers of this onnxruntime, e.g. ``("cpu",)``."""
    return _short(ort.get_available_providers())


def known() -> tuple[str, ...]:
    """Short names of all that onnxruntime has, in whatever package."""
    return tuple(dict.fromkeys((*installed(), *_short(ort.get_all_providers()))))


def _short(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.removesuffix(_SUFFIX).lower() for name in names)


def runtime_version() -> str:
    """Of onnxruntime, whichever package it comes from: providers have packages of their own, like onnxruntime-gpu."""
    return str(ort.__version__)


def provider_of(ep: str) -> str:
    """The full name of an execution provider.

    Raises:
        TargetError: It is not installed.
    """
    for name in ort.get_available_providers():
        if ep.lower() in (name.lower(), name.removesuffix(_SUFFIX).lower()):
            return str(name)
    raise TargetError(
        f"execution provider '{ep}' is not installed, this onnxruntime has: {', '.join(installed())};"
        " choose one of them or install its package"
    )
