from dataclasses import replace

import numpy as np
import pytest
from optuna.study import StudyDirection
from optuna.trial import TrialState

from autoquant.study.gain import Gain
from autoquant.study.knowledge import Knowledge
from autoquant.study.proposal import Fixed
from autoquant.study.proposing import Proposer
from autoquant.study.standing import Interest
from tests.unit.study.additive import CHOICES, N_REGIONS, a_layout
from tests.unit.study.test_knowledge import a_trial

DIRECTIONS = [StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE]
FREE = Fixed(np.full(N_REGIONS, -1))


def a_proposer(seed: int = 0, interest: Interest | None = None) -> Proposer:
    """That knows the uniform recipes."""
    known = Knowledge(a_layout(), interest or Interest())
    known.learn([a_trial(name, number) for number, name in enumerate(CHOICES)], DIRECTIONS)
    return Proposer(known, np.random.default_rng(seed))


def test_a_proposal_is_new_and_something_is_expected_of_it() -> None:
    seen = frozenset(np.full(N_REGIONS, code).tobytes() for code in range(3))
    codes, promise = a_proposer().propose(seen, FREE)
    assert codes.tobytes() not in seen
    assert promise is not None
    assert promise.gain > 0
    assert promise.weights.tolist() == [1]


def test_equal_draws_give_equal_proposals() -> None:
    first, again, *others = (a_proposer(seed).propose(frozenset(), FREE)[0].tolist() for seed in (0, 0, 1, 2, 3))
    assert first == again
    assert any(first != other for other in others)


def test_of_those_that_met_each_takes_the_candidate_of_its_rank() -> None:
    made = [replace(a_proposer(), rank=rank).propose(frozenset(), FREE) for rank in (0, 1, 2, 1000)]
    assert len({codes.tobytes() for codes, _ in made}) == 4
    gains = [promise.gain for _, promise in made if promise is not None]
    assert gains[0] > gains[3]


def test_a_proposal_has_what_is_fixed() -> None:
    fixed = FREE.codes.copy()
    fixed[:3] = 2, 0, 1
    for seed in range(5):
        codes, _ = a_proposer(seed).propose(frozenset(), Fixed(fixed))
        assert codes[:3].tolist() == [2, 0, 1]


def test_where_no_candidate_is_new_something_else_is_proposed_of_which_nothing_is_expected() -> None:
    """All but one region are fixed, so that its neighbours are all that there is."""
    fixed = np.zeros(N_REGIONS, dtype=np.int64)
    fixed[0] = -1
    every = [np.concatenate([[code], fixed[1:]]) for code in range(3)]
    codes, promise = a_proposer().propose(frozenset(each.tobytes() for each in every[:2]), Fixed(fixed))
    assert codes.tolist() == every[2].tolist()
    assert promise is not None
    codes, promise = a_proposer().propose(frozenset(each.tobytes() for each in every), Fixed(fixed))
    assert codes.tolist() in [each.tolist() for each in every]
    assert promise is None


def test_what_alone_makes_trials_fail_is_not_proposed() -> None:
    layout = a_layout()
    failed = [a_trial("float", number, TrialState.FAIL) for number in (3, 4)]
    for trial in failed:
        trial.params = {**trial.params, layout.regions[0]: "a"}
    recipes = [a_trial("float", 0), a_trial("b", 2)]
    known = Knowledge(layout, Interest())
    seen = known.learn([*recipes, *failed], DIRECTIONS)
    proposals = [Proposer(known, np.random.default_rng(seed)).propose(seen, FREE)[0] for seed in range(10)]
    assert all(codes[0] != 1 for codes in proposals)


@pytest.mark.filterwarnings("ignore:sizes are of interest:UserWarning")
@pytest.mark.parametrize("has_size", [False, True])
def test_with_several_objectives_beside_snr_each_proposal_weighs_them_anew(has_size: bool) -> None:
    proposer = a_proposer(interest=Interest(has_size=has_size))
    promises = [proposer.propose(frozenset(), FREE)[1] for _ in range(3)]
    weights = {tuple(promise.weights) for promise in promises if promise is not None}
    assert len(weights) == (3 if has_size else 1)
    assert all(sum(each) == pytest.approx(1) and len(each) == 1 + has_size for each in weights)


@pytest.mark.parametrize(("more", "is_slow_one_chosen"), [(1.1, False), (3.0, True)])
def test_what_gains_most_for_its_time_is_proposed(
    monkeypatch: pytest.MonkeyPatch, more: float, is_slow_one_chosen: bool
) -> None:
    """Of a candidate that takes about twice as long and gains 1.1 or 3 times as much as another one."""
    proposer = a_proposer()
    slow, fast = np.zeros((1, N_REGIONS), dtype=np.int64), np.full((1, N_REGIONS), 1)
    monkeypatch.setattr(Gain, "expected", lambda *_: np.array([more, 1.0]))
    monkeypatch.setattr(Proposer, "_chances", lambda *_: np.ones(2))
    gain = Gain.of(np.array([10.0]), np.array([0.9]))
    codes, promise = proposer._best(np.concatenate([slow, fast]), gain, np.ones(1))
    assert (codes.tolist() == slow[0].tolist()) is is_slow_one_chosen
    assert promise.gain == (more if is_slow_one_chosen else 1.0)


@pytest.mark.filterwarnings("ignore:sizes are of interest:UserWarning")
def test_with_several_objectives_what_would_be_too_slow_is_not_expected_to_gain() -> None:
    """As they are weighed, one number is no demand on latency."""
    slow, fast = np.zeros((1, N_REGIONS), dtype=np.int64), np.full((1, N_REGIONS), 1)
    free, asked = (a_proposer(interest=Interest(has_size=True, max_ratio=ratio)) for ratio in (None, 0.7))
    chances = [
        proposer._chances(c, proposer.known.predict(c)).item() for proposer in (free, asked) for c in (slow, fast)
    ]
    assert chances[0] == pytest.approx(chances[1])
    assert chances[2] < 0.01 * chances[3]
