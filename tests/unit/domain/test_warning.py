import sys
import warnings

import optuna
import pytest

from autoquant.domain.warning import warn_caller


def a_study(inside: object) -> optuna.Study:
    """Of one trial, whose sampler warns as the package's own would."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    study.sampler.after_trial = inside  # type: ignore[method-assign]
    return study


def test_the_warning_names_the_line_outside_of_this_package_and_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*_: object) -> None:
        warn_caller("one sentence")

    monkeypatch.setitem(warn.__globals__, "__name__", "autoquant.study.sampler")
    study = a_study(warn)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        exec("study.optimize(lambda trial: 0.0, n_trials=1)", {"study": study, "__name__": "mine"})
    (one,) = told
    assert str(one.message) == "one sentence"
    assert (one.filename, one.category) == ("<string>", UserWarning)


def test_where_nothing_is_outside_it_warns_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["autoquant.domain.warning"], "_INSIDE", _All())
    with pytest.warns(UserWarning, match="one sentence"):
        warn_caller("one sentence")


class _All:
    def __contains__(self, name: object) -> bool:
        return True
