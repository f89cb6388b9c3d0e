import pytest

from experiments.search.asking import holds, measure_asking, render_asking


@pytest.mark.parametrize("reach", [1, 4])
def test_it_times_the_proposals_after_a_filled_study(reach: int) -> None:
    found = measure_asking((5, 30, 2, 2, reach), n_proposals=3)
    assert len(found["following_ms"]) == 2
    assert all(ms > 0 for ms in (found["first_ms"], *found["following_ms"]))
    assert f"| 5 | 30 | 2 | 2 | {reach} |" in render_asking({"parts": {"asking": {"cases": [found]}}})


def test_what_takes_too_long_does_not_hold() -> None:
    def part(ms: float) -> dict[str, list[dict[str, object]]]:
        return {"cases": [{"case": [40, 500, 1, 1, 1], "first_ms": 1.0, "following_ms": [ms, ms]}]}

    assert holds(part(20.0))
    assert not holds(part(60.0))
