import pytest

from autoquant.errors import ProfileError
from autoquant.measurement.bench import Bench
from tests.compiling import compile_graphs
from tests.models import a_convnet
from tests.unit.measurement.benches import skeleton_of


def test_profiles_are_of_the_users_model_and_of_the_candidates(bench: Bench) -> None:
    float_, integer = bench.profile([(skeleton_of(a_convnet()), {}), (skeleton_of(a_convnet()), {})], 0.0, 60.0)[1:]
    assert float_.kernel_us.keys() == integer.kernel_us.keys()
    assert len(bench.profile([], 0.0, 60.0)) == 1


def test_profiles_that_there_is_no_time_for_are_not_begun(bench: Bench) -> None:
    bench.opener.seconds = 2.0
    with pytest.raises(ProfileError, match=r"they would take 4\.\d s"):
        bench.profile([(skeleton_of(a_convnet()), {})], 0.0, 3.0)


def test_where_graphs_are_compiled_there_are_no_profiles(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_graphs(monkeypatch)
    with pytest.raises(ProfileError, match="compiles graphs"):
        bench.profile([], 0.0, 60.0)
