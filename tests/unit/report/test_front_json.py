import json
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.front import FLOAT_ID, Front, Member
from autoquant.domain.measurement import Footprint, Latency, Quality, SnrInterval
from autoquant.domain.metric import MemberMetric, MetricValue, PartValues
from autoquant.domain.objective import DEFAULT_OBJECTIVES, SNR_LIMIT_DB, Goal
from autoquant.domain.region import RegionId
from autoquant.domain.target import Target
from autoquant.errors import OutputError
from autoquant.report.front_json import front_from_json, front_json
from tests.records import a_float_member, a_front, a_member

texts = st.text(max_size=8)
positive = st.floats(1e-6, 1e6)
snrs = st.floats(-199, 199) | st.just(math.inf)
latencies = st.builds(
    Latency,
    median_ms=positive,
    low_ms=positive,
    high_ms=positive,
    ratio=positive,
    ratio_low=positive,
    ratio_high=positive,
    n_rounds=st.integers(0, 99),
    n_sessions=st.integers(0, 9),
    p90_ms=st.none() | positive,
    p99_ms=st.none() | positive,
)
qualities = st.builds(
    Quality,
    per_output=st.dictionaries(texts, snrs, max_size=3),
    agreement=st.dictionaries(texts, st.floats(0, 1), max_size=2),
    n_samples=st.just(0),
)
targets = st.lists(
    st.builds(
        Target,
        ep=st.sampled_from(["cpu", "cuda"]),
        threads=st.integers(1, 64),
        options=st.dictionaries(texts, texts, max_size=2),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda target: target.name,
)


ends = st.none() | snrs
intervals = st.builds(SnrInterval, worst_db=snrs, n_samples=st.integers(0, 99), low_db=ends, high_db=ends)
reals = st.floats(-1e6, 1e6)
values = st.builds(
    MetricValue,
    value=reals,
    n_samples=st.integers(1, 99),
    low=reals | st.just(-math.inf),
    high=reals | st.just(math.inf),
)
parts = st.builds(PartValues, all=values, search=values, held_out=st.none() | values)
footprints = st.builds(
    Footprint, opening_ms=st.floats(0, 1e6), memory_mb=st.none() | st.floats(0, 1e6, allow_nan=False)
)


@st.composite
def fronts(draw: st.DrawFn) -> Front:
    chosen = tuple(draw(targets))
    ids = [*draw(st.lists(texts.filter(lambda text: text != FLOAT_ID), max_size=3, unique=True)), FLOAT_ID]
    members = [
        Member(
            id=member_id,
            path=draw(texts),
            sha256=draw(texts),
            size_bytes=draw(st.integers(0, 2**60)),
            quality=None if member_id == FLOAT_ID else draw(qualities),
            latency={target.name: draw(latencies) for target in chosen},
            footprint={target.name: draw(footprints) for target in chosen},
            assignment={RegionId(region): scheme for region, scheme in draw(st.dictionaries(texts, texts)).items()},
            note=draw(texts),
            snr_search=draw(st.none() | intervals),
            snr_held_out=draw(st.none() | intervals),
            metrics=draw(st.dictionaries(texts, st.builds(MemberMetric, value=parts, drop=parts), max_size=2)),
        )
        for member_id in ids
    ]
    return Front(
        model_path=draw(texts),
        model_sha256=draw(texts),
        targets=chosen,
        members=tuple(members),
        objectives=draw(st.dictionaries(texts, st.sampled_from(Goal))),
    )


def edited(change: Callable[[dict[str, object]], object]) -> str:
    document = json.loads(front_json(a_front(a_member())))
    change(document)
    return json.dumps(document)


@given(fronts())
def test_a_front_is_read_back_as_it_is_written(front: Front) -> None:
    assert front_from_json(front_json(front)) == front


def test_the_text_has_the_keys_of_the_schema_and_no_others() -> None:
    document = json.loads(front_json(a_front(a_member(assignment={"z": "u8s8", "a": "u16s8"}))))

    assert list(document) == ["schema_version", "model", "targets", "objectives", "members"]
    assert document["schema_version"] == 1
    assert document["objectives"] == {"snr": "maximize", "latency": "minimize"}
    assert document["model"] == {"path": "data/model.onnx", "sha256": "ef" * 32}
    own = {"name": "cpu-1t", "ep": "cpu", "options": {}, "threads": 1}
    assert document["targets"] == [{**own, "batch": 1, "streams": 1, "affinity": []}]
    quantized, _ = document["members"]
    assert list(quantized) == [
        "id",
        "path",
        "sha256",
        "size_bytes",
        "snr_db",
        "latency",
        "assignment",
        "note",
        "algorithms",
        "session",
        "snr_db_search",
        "snr_db_held_out",
        "metrics",
    ]
    assert quantized["snr_db_held_out"] == {"worst": 41.0, "low": 40.0, "high": 42.0, "n_samples": 32}
    assert quantized["metrics"] == {}
    assert quantized["snr_db"] == {"worst": 42.0, "per_output": {"logits": 42.0}}
    assert list(quantized["latency"]["cpu-1t"]) == [
        "median_ms",
        "low_ms",
        "high_ms",
        "ratio",
        "ratio_low",
        "ratio_high",
        "n_rounds",
        "n_sessions",
        "p90_ms",
        "p99_ms",
    ]
    assert quantized["session"] == {"cpu-1t": {"opening_ms": 25.0, "memory_mb": 12.5}}
    assert list(quantized["assignment"]) == ["a", "z"]


def test_the_worst_snr_of_the_float_model_is_null() -> None:
    (member,) = json.loads(front_json(a_front()))["members"]

    assert member["id"] == FLOAT_ID
    assert member["snr_db"] == {"worst": None, "per_output": {}}
    assert member["latency"]["cpu-1t"]["ratio"] == 1


def test_an_infinite_snr_is_written_as_the_limit() -> None:
    member = json.loads(front_json(a_front(a_member(snr_db=math.inf))))["members"][0]

    assert member["snr_db"] == {"worst": SNR_LIMIT_DB, "per_output": {"logits": SNR_LIMIT_DB}}


def test_an_snr_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        front_json(a_front(a_member(snr_db=math.nan)))


def test_agreement_of_integer_outputs_stands_beside_the_snr() -> None:
    quality = Quality(per_output={}, agreement={"classes": 0.98}, n_samples=64)
    member = json.loads(front_json(a_front(replace(a_member(), quality=quality))))["members"][0]

    assert member["agreement"] == {"classes": 0.98}
    assert member["snr_db"] == {"worst": pytest.approx(16.99, abs=0.01), "per_output": {}}


def test_keys_of_a_later_version_are_left_aside() -> None:
    front = front_from_json(edited(lambda document: document.update(added=1)))

    assert front.model_path == "data/model.onnx"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"^front.json: invalid JSON"),
        ('{"schema_version": 1', r"^front.json: invalid JSON"),
        (edited(lambda document: document.pop("model")), r"^front.json, model: field required"),
        (edited(lambda document: document.update(schema_version=2)), r"schema_version 2, .* reads 1$"),
        (edited(lambda document: document.update(schema_version="1")), r"^front.json, schema_version: "),
        (edited(lambda document: document.update(members=[])), r"member 'float' is missing"),
        (edited(lambda document: document.update(targets=[])), r"^front.json, targets: "),
    ],
)
def test_text_that_is_no_front_is_refused_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(OutputError, match=message) as refusal:
        front_from_json(text)

    assert "\n" not in str(refusal.value)


def test_a_number_that_json_has_not_is_refused() -> None:
    text = front_json(a_front(a_member())).replace("42.0", "Infinity", 1)

    with pytest.raises(OutputError, match=r"members\.0\.snr_db\.worst: input should be a finite number"):
        front_from_json(text)


def test_two_members_with_one_id_are_refused() -> None:
    with pytest.raises(OutputError, match="an id is there twice"):
        front_from_json(front_json(a_front(a_member("m1"), a_member("m1"))))


def test_a_member_without_a_latency_on_a_target_is_refused() -> None:
    front = a_front(replace(a_member("m1"), latency={}))

    with pytest.raises(OutputError, match=r"member 'm1': there is no latency for target 'cpu-1t'"):
        front_from_json(front_json(front))


def test_a_target_without_threads_is_refused() -> None:
    text = front_json(replace(a_front(), members=(a_float_member(),))).replace('"threads": 1', '"threads": 0')

    with pytest.raises(OutputError, match="threads is 0, it must be at least 1"):
        front_from_json(text)


def test_metrics_are_written_by_part_and_what_is_not_known_is_null() -> None:
    member = replace(a_member(drops={"top1": 0.03}), snr_held_out=None)
    found, other = json.loads(front_json(a_front(member)))["members"]

    assert found["snr_db_held_out"] is None
    assert found["metrics"]["top1"]["all"] == {"value": 0.87, "low": None, "high": None, "n_samples": 64}
    assert found["metrics"]["top1"]["drop"]["held_out"]["value"] == pytest.approx(0.04)
    assert other["metrics"]["top1"]["drop"]["all"]["value"] == 0
    assert other["snr_db_search"] is None


def test_an_interval_that_is_none_is_refused() -> None:
    text = edited(lambda document: document["members"][0].update(snr_db_search={"worst": "high"}))  # type: ignore[index]
    with pytest.raises(OutputError, match=r"members\.0\.snr_db_search"):
        front_from_json(text)


def test_a_front_that_does_not_say_its_objectives_is_of_snr_and_latency() -> None:
    assert front_from_json(edited(lambda document: document.pop("objectives"))).objectives == DEFAULT_OBJECTIVES.goals


def test_an_objective_of_no_known_direction_is_refused() -> None:
    text = edited(lambda document: document.update(objectives={"snr": "up"}))
    with pytest.raises(OutputError, match=r"front\.json, objectives\.snr: input should be 'maximize' or 'minimize'"):
        front_from_json(text)
