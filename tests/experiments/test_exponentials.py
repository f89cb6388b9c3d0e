import pytest

from autoquant.rewrites.exponentials import split_exponentials
from experiments.bench.exponentials import ACTIVATIONS, chain, measure_exponentials, render_exponentials
from tests.models import op_types


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_all_of_a_chain_is_written_with_other_operators(activation: str) -> None:
    given = chain(activation, (8, 16, 16))
    assert op_types(given) == [*ACTIVATIONS[activation]] * 4
    assert {"Elu", "Softplus", "Tanh"}.isdisjoint(op_types(split_exponentials(given)))


def test_a_chain_is_measured_beside_what_is_made_of_it() -> None:
    found = measure_exponentials("Elu", (8, 5, 5), 2.0)
    assert found["snr_db"] > 120
    assert found["ratio"] > 0
    lines = render_exponentials({"parts": {"a": {"activation": "Elu", "shape": (8, 5, 5), **found}}}).splitlines()
    assert [line[:19] for line in lines[2:]] == ["| Elu | 8 x 5 x 5 |"]
