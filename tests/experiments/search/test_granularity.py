from experiments.search.blocks import FAMILIES, make_blocks
from experiments.search.granularity import measure_family, render_granularity, search_blocks

BLOCKS = make_blocks(16, FAMILIES["alike"], seed=1)


def test_a_search_makes_so_many_evaluations_and_the_same_again() -> None:
    first, again = (search_blocks(BLOCKS, n_evaluations=14, seed=0).points for _ in range(2))
    assert len(first) == 14
    assert first == again


def test_a_line_says_what_was_reached_by_each_number_of_evaluations() -> None:
    found = measure_family("unlike", 16, [10, 14], seeds=2)
    assert [len(shares) for shares in found["told"]] == [2, 2]
    assert all(
        share >= recipes for shares, recipes in zip(found["told"], found["recipes"], strict=True) for share in shares
    )
    text = render_granularity({"parts": {"unlike": {"cases": [found], "settings": {"evaluations": [10, 14]}}}})
    assert "| unlike | 16 | told |" in text
    assert "| unlike | 16 | untold |" in text
    assert "14 evaluations" in text
