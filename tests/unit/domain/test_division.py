from autoquant.domain.division import Division


def test_the_search_part_comes_first_and_both_are_pooled() -> None:
    found = Division(n_search=3, n_held_out=2)
    assert (found.search, found.held_out, found.pooled) == (range(3), range(3, 5), range(5))
    assert len(found) == 5


def test_data_of_their_own_are_not_pooled() -> None:
    assert Division(n_search=3, n_held_out=2, is_pooled=False).pooled == range(3)


def test_fewer_samples_of_the_search_mean_fewer_of_the_others() -> None:
    whole = Division(n_search=10, n_held_out=20)
    assert whole.shortened(5) == Division(n_search=5, n_held_out=10)
    assert whole.shortened(10) == whole
    assert Division(n_search=100, n_held_out=3).shortened(2).n_held_out == 1
    assert Division(n_search=10).shortened(2) == Division(n_search=2)
