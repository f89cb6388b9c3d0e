from autoquant.rewrites.layouts import Layout


def test_layouts_are_joined_and_parted() -> None:
    one, other = Layout.of(3, 4), Layout.of(2)
    joined = Layout.joined([one, other])
    assert joined == Layout((0, 1, 2, 4, 5), 6)
    assert [joined.part(0, 3), joined.part(3, 5)] == [one, other]
    assert joined.part(1, 4) == Layout((0, 1, 3), 4)
    assert [layout.is_filled for layout in (one, other, joined)] == [True, False, True]
