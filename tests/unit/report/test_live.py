from autoquant.report.live import LiveLine


def test_seconds_run_on_while_a_stage_has_nothing_to_tell() -> None:
    now = 100.0
    line = LiveLine(lambda: now)
    line.tell("refine", 12.0, 40, {30: 0.5, 40: 0.625})
    assert line.__rich__().plain == "refine    12 s left  40 evaluations  30 dB: 0.500  40 dB: 0.625"
    now += 5
    assert "   7 s left" in line.__rich__().plain
    now += 60
    assert "   0 s left" in line.__rich__().plain


def test_there_are_no_seconds_without_a_limit_and_nothing_before_anything_was_told() -> None:
    line = LiveLine()
    assert line.__rich__().plain == ""
    line.tell("search", None, 3, {})
    assert line.__rich__().plain == "search  3 evaluations  "
