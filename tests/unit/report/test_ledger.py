from autoquant.domain.ledger import Way
from autoquant.domain.target import Target
from autoquant.report.ledger import ledger_view, signed_text
from tests.records import a_border_cost, a_foresight, a_front, a_ledger, a_member, a_record, a_region_cost

TWO_TARGETS = (Target("cpu", 1), Target("cpu", 2))


def test_a_record_without_a_ledger_has_no_view() -> None:
    assert ledger_view(a_record()) is None


def test_the_best_bargain_and_the_costliest_border_come_first() -> None:
    regions = (
        a_region_cost("slower", change_us=5.0, snr_db=60.0),
        a_region_cost("loud", change_us=-100.0, snr_db=30.0),
        a_region_cost("quiet", change_us=-100.0, snr_db=50.0, operators=Way.LINEAR),
    )
    borders = (a_border_cost("a", "b", change_us=-1.0), a_border_cost("b", "c", change_us=9.0))

    view = ledger_view(a_record(ledger=a_ledger(regions, borders)))

    assert view is not None
    assert [cost.region for cost in view.regions] == ["quiet", "loud", "slower"]
    assert [cost.regions[0] for cost in view.borders] == ["b", "a"]


def test_the_first_target_decides_the_order() -> None:
    front = a_front(a_member(targets=TWO_TARGETS), targets=TWO_TARGETS)
    first = a_border_cost("a", "b", targets=TWO_TARGETS[:1], change_us=1.0)
    second = a_border_cost("b", "c", targets=TWO_TARGETS[:1], change_us=2.0)

    view = ledger_view(a_record(front, ledger=a_ledger((), (first, second))))

    assert view is not None
    assert view.borders == [second, first]


def test_the_lead_says_whose_intervals_they_are_and_how_good_predictions_were() -> None:
    view = ledger_view(a_record(ledger=a_ledger(foresight=a_foresight())))

    assert view is not None
    assert "their sum is known better than each of them" in view.lead
    assert "those of latencies are 0.9 and those of SNR and noise 1.3 times as wide as it says" in view.lead
    assert view.lead.endswith("none of the proposals were left to a generic sampler in the end.")


def test_a_model_that_predicted_nothing_is_not_said_to_have_predicted() -> None:
    view = ledger_view(a_record(ledger=a_ledger(foresight=None)))

    assert view is not None
    assert "predicted" not in view.lead


def test_changes_have_their_sign_and_about_three_digits() -> None:
    assert [signed_text(number) for number in (0.0, 1.234, -56.78, 99.999)] == ["+0.00", "+1.23", "-56.8", "+100"]
