import pytest

from autoquant.measurement.roster import NO_MEMORY, Roster


@pytest.fixture
def roster() -> Roster:
    return Roster(["a", "b", "c", "d", "e"])


def test_files_that_are_lost_or_left_out_are_kept_no_more_and_the_others_in_their_order(roster: Roster) -> None:
    roster.lose({"b": "it hangs"})
    roster.leave_out(["d"], "no time for {}")
    roster.drop(["a"])
    assert roster.kept == ["c", "e"]
    assert roster.lost == {"b": "it hangs"}
    assert roster.sentences == ["no time for 1 of 5 files"]


@pytest.mark.parametrize(("to_one", "kept"), [(False, ["a", "b"]), (True, ["a"])])
def test_the_half_that_is_kept_comes_from_what_could_be_opened_alone(
    roster: Roster, to_one: bool, kept: list[str]
) -> None:
    roster.begin()
    roster.lose({"c": "it is broken", "e": NO_MEMORY})
    assert roster.halve("out of memory", to_one=to_one)
    assert roster.kept == kept
    assert roster.lost == {"c": "it is broken"}
    n_left_out = 4 - len(kept)
    said = f"left out, as together they could not be measured: {n_left_out} of 5 files, out of memory"
    assert roster.sentences == [said]


def test_one_file_is_not_halved(roster: Roster) -> None:
    roster.leave_out(["b", "c", "d", "e"], "no time for {}")
    roster.begin()
    assert not roster.halve("out of memory", to_one=False)
    assert roster.kept == ["a"]


def test_what_was_left_out_by_a_process_that_came_to_no_end_and_is_measured_after_all_is_not_told(
    roster: Roster,
) -> None:
    roster.begin()
    roster.leave_out(["b", "c", "d", "e"], "no time for {}")
    assert roster.halve("out of memory", to_one=False)
    assert roster.kept == ["a", "b"]
    assert roster.sentences == ["left out, as together they could not be measured: 3 of 5 files, out of memory"]
