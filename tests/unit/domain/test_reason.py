from autoquant.domain.reason import one_line


def test_what_an_error_says_has_one_line_and_an_end() -> None:
    assert one_line(ValueError("first\n  second\tthird")) == "first second third"
    assert len(one_line(ValueError(1000 * "x"))) == 300
