import io
import math
from dataclasses import replace

import pandas as pd
import pytest

from autoquant.domain.measurement import Evaluation, Quality, SnrInterval
from autoquant.domain.objective import Objectives
from autoquant.domain.target import Target
from autoquant.metrics.grammar import parse_metrics
from autoquant.report.tables import front_table, ledger_table, member_rows, trials_table
from tests.records import (
    a_border_cost,
    a_failure,
    a_float_member,
    a_front,
    a_ledger,
    a_measured,
    a_member,
    a_region,
    a_region_cost,
)

TWO_TARGETS = (Target("cpu", 1), Target("cpu", 2))


def test_the_front_has_one_row_per_member_in_its_order() -> None:
    table = front_table(a_front(a_member("m1", ratio=0.5, snr_db=30.0), a_member("m2", ratio=0.7, snr_db=45.0)))

    assert list(table.columns) == [
        "id",
        "path",
        "snr_db",
        "snr_db[search]",
        "snr_db_low[search]",
        "snr_db_high[search]",
        "snr_db[held_out]",
        "snr_db_low[held_out]",
        "snr_db_high[held_out]",
        "ratio",
        "ratio_low",
        "ratio_high",
        "median_ms",
        "low_ms",
        "high_ms",
        "p90_ms",
        "p99_ms",
        "opening_ms",
        "memory_mb",
        "size_bytes",
        "n_quantized_regions",
        "note",
    ]
    assert table["id"].to_list() == ["m1", "m2", "float"]
    assert table["ratio"].to_list() == [0.5, 0.7, 1.0]
    assert table["n_quantized_regions"].to_list() == [2, 2, 0]


def test_the_float_model_meets_every_demand() -> None:
    table = front_table(a_front(a_member(snr_db=30.0)))

    assert table.loc[table["snr_db"] >= 60, "id"].to_list() == ["float"]
    assert table["snr_db"].to_list() == [30.0, math.inf]


def test_a_region_that_is_asked_to_be_float_is_not_quantized() -> None:
    table = front_table(a_front(a_member(assignment={"r0": "u8s8", "r1": "float"})))

    assert table["n_quantized_regions"].to_list() == [1, 0]


def test_with_several_targets_each_has_its_columns_of_latency() -> None:
    table = front_table(a_front(a_member(targets=TWO_TARGETS), targets=TWO_TARGETS))

    assert "ratio" not in table.columns
    assert table["ratio[cpu-1t]"].to_list() == table["ratio[cpu-2t]"].to_list() == [0.5, 1.0]
    assert {"high_ms[cpu-1t]", "high_ms[cpu-2t]"} < set(table.columns)


def test_the_front_survives_csv() -> None:
    table = front_table(a_front(a_member(note="slow, on paper")))

    read = pd.read_csv(io.StringIO(table.to_csv(index=False)), keep_default_na=False)

    pd.testing.assert_frame_equal(read, table, check_dtype=False)


def test_trials_tell_complete_from_rejected_and_failed() -> None:
    table = trials_table([a_measured(0), a_measured(1, is_complete=False, ratio=None), a_failure(2)])

    assert table["state"].to_list() == ["complete", "rejected-early", "failed"]
    assert table["reason"].to_list() == ["", "", "build: no range for 'x'"]
    assert table["n_samples"].to_list()[:2] == [64, 4]
    assert table["ratio"].isna().to_list() == [False, True, True]
    assert table["snr_db"].isna().to_list() == [False, False, True]
    assert table["digest"].to_list() == ["digest0", "digest1", ""]


def test_trials_tell_what_was_not_timed() -> None:
    table = trials_table([a_measured(0), a_measured(1, ratio=None)])
    assert table["state"].to_list() == ["complete", "untimed"]
    assert table["ratio"].isna().to_list() == [False, True]


def test_every_region_has_a_column_with_the_asked_scheme() -> None:
    evaluations = [a_measured(0, assignment={"r1": "u8s8"}), a_measured(1, assignment={"state": "u16s8"})]

    table = trials_table(evaluations, [a_region("r0"), a_region("r1")])

    assert list(table.columns)[-3:] == ["scheme[r0]", "scheme[r1]", "scheme[state]"]
    assert table["scheme[r0]"].to_list() == ["float", "float"]
    assert table["scheme[r1]"].to_list() == ["u8s8", "float"]
    assert table["scheme[state]"].to_list() == ["float", "u16s8"]
    assert table["state"].to_list() == ["complete", "complete"]


def test_trials_on_several_targets_have_columns_for_each() -> None:
    table = trials_table([a_measured(0, target="cpu-1t", ratio=0.5), a_measured(1, target="cpu-2t", ratio=0.6)])

    assert table["ratio[cpu-1t]"].to_list()[0] == 0.5
    assert table["ratio[cpu-2t]"].isna().to_list() == [True, False]


@pytest.mark.parametrize("evaluations", [[], [a_failure(0)]])
def test_the_columns_are_there_without_a_measurement(evaluations: list[Evaluation]) -> None:
    table = trials_table(evaluations)

    assert len(table) == len(evaluations)
    assert list(table.columns[:2]) == ["number", "state"]
    assert {"snr_db", "n_samples", "digest", "reason"} <= set(table.columns)


def test_metrics_have_columns_for_all_samples_and_for_each_part() -> None:
    table = front_table(a_front(a_member(drops={"top1": 0.03})))

    assert table["metric[top1]"].to_list() == pytest.approx([0.87, 0.9])
    assert table["drop[top1]"].to_list() == [0.03, 0.0]
    assert table["drop[top1,held_out]"].to_list() == pytest.approx([0.04, 0.01])
    assert table["drop_low[top1,search]"].to_list() == pytest.approx([0.0, -0.03])
    assert table["metric_low[top1]"].isna().all()


def test_what_was_not_measured_on_a_part_is_nan_and_the_float_model_meets_every_demand_there() -> None:
    table = front_table(a_front(replace(a_member(), snr_held_out=None)))

    assert table["snr_db[held_out]"].isna().to_list() == [True, False]
    assert table["snr_db[held_out]"].to_list()[1] == math.inf
    assert front_table(a_front()).columns.to_list() == table.columns.to_list()


def test_a_terminal_shows_the_first_metric_and_what_was_held_out() -> None:
    headings, rows = member_rows(a_front(a_member("m1", snr_db=30, drops={"top1": 0.03, "cosine": 0.1})))

    assert headings == ["id", "SNR dB", "held out", "95 %", "top1", "drop, %", "ratio", "95 %", "ms", "regions"]
    assert rows[0] == ["m1", "30.0", "29.0", "28.0 to 30.0", "0.87", "3.00", "0.500", "0.490-0.510", "5.000", "2"]
    assert rows[1] == ["float", "inf", "", "", "0.9", "0.00", "1.000", "", "10.000", "0"]


def test_a_terminal_shows_no_more_than_there_is() -> None:
    headings, rows = member_rows(replace(a_front(), members=(a_float_member(),)))

    assert headings == ["id", "SNR dB", "95 %", "ratio", "95 %", "ms", "regions"]
    assert len(rows[0]) == len(headings)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (SnrInterval(worst_db=3.0, n_samples=8, low_db=-1.25, high_db=math.inf), "-1.2 to inf"),
        (SnrInterval(worst_db=3.0, n_samples=5), "5 samples"),
        (SnrInterval(worst_db=3.0, n_samples=1), "1 sample"),
    ],
)
def test_a_terminal_shows_how_far_an_snr_is_known_where_nothing_is_held_out(found: SnrInterval, text: str) -> None:
    headings, rows = member_rows(a_front(replace(a_member("m1"), snr_search=found, snr_held_out=None)))

    assert headings == ["id", "SNR dB", "95 %", "ratio", "95 %", "ms", "regions"]
    assert (rows[0][2], rows[1][2]) == (text, "")


def test_outputs_that_are_counted_have_their_agreement_in_the_table_and_the_worst_one_in_the_terminal() -> None:
    quality = Quality(per_output={"logits": 30.0}, agreement={"ids": 0.9876, "length": 1.0}, n_samples=64)
    front = a_front(replace(a_member("m1", drops={"top1": 0.03}), quality=quality))
    headings, rows = member_rows(front)

    assert headings[:6] == ["id", "SNR dB", "held out", "95 %", "agree, %", "top1"]
    assert [row[4] for row in rows] == ["98.76", "100.00"]
    assert front_table(front)["agreement[ids]"].to_list() == [0.9876, 1.0]
    assert front_table(front)["agreement[length]"].to_list() == [1.0, 1.0]


def test_trials_that_were_scored_have_their_drops() -> None:
    table = trials_table([a_measured(0, drops={"top1": 0.02}), a_measured(1), a_failure(2)])

    assert table["drop[top1]"].to_list()[0] == 0.02
    assert table["drop[top1]"].isna().to_list() == [False, True, True]


def test_trials_have_the_size_of_the_candidate() -> None:
    table = trials_table([a_measured(0, size_bytes=1234), a_failure(1)])

    assert table["size_bytes"].to_list()[0] == 1234
    assert table["size_bytes"].isna().to_list() == [False, True]


def test_a_terminal_shows_objectives_before_other_metrics_and_sizes_where_they_count() -> None:
    goals = Objectives(has_snr=False, metrics=parse_metrics(["top1"]), has_size=True).goals
    front = replace(a_front(a_member("m1", drops={"cosine": 0.1, "top1": 0.03})), objectives=goals)
    headings, rows = member_rows(front)

    assert headings == ["id", "SNR dB", "held out", "95 %", "top1", "drop, %", "ratio", "95 %", "ms", "MB", "regions"]
    assert rows[0][-2:] == ["2.500", "2"]


def test_the_ledger_has_a_row_for_each_region_and_border() -> None:
    table = ledger_table(a_ledger())

    assert table["kind"].to_list() == ["all", "linear", "border"]
    assert table["region"].to_list() == ["r0", "r1", "r0"]
    assert table["neighbour"].to_list() == ["", "", "r1"]
    assert table[["us", "us_low", "us_high"]].to_numpy()[2].tolist() == [15.0, 13.0, 17.0]
    assert table[["scheme", "snr_db", "snr_db_low", "snr_db_high"]].to_numpy()[0].tolist() == ["u8s8", 45.0, 43.0, 47.0]
    shares = table[["noise_share", "noise_share_low", "noise_share_high"]].to_numpy()[0]
    assert shares == pytest.approx([0.25, 0.2, 0.3])
    assert table[["snr_db", "noise_share"]].isna().to_numpy().tolist() == [[False] * 2, [False] * 2, [True] * 2]


def test_a_ledger_of_several_targets_has_columns_for_each() -> None:
    table = ledger_table(a_ledger((a_region_cost(targets=TWO_TARGETS),), (a_border_cost(targets=TWO_TARGETS),)))

    assert table.columns.to_list()[3:9] == [
        f"us{end}[{target}]" for target in ("cpu-1t", "cpu-2t") for end in ("", "_low", "_high")
    ]


def test_a_ledger_without_borders_has_the_same_columns() -> None:
    assert ledger_table(a_ledger(borders=())).columns.to_list() == ledger_table(a_ledger()).columns.to_list()
