import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import plotly.offline
import pytest

from autoquant.domain.front import RunRecord
from autoquant.domain.ledger import Ledger
from autoquant.domain.measurement import Quality
from autoquant.domain.objective import Objectives
from autoquant.domain.target import Target
from autoquant.metrics.grammar import parse_metrics
from autoquant.report.html import report_html
from tests.records import (
    a_border_cost,
    a_failure,
    a_front,
    a_ledger,
    a_measured,
    a_member,
    a_record,
    a_region,
    a_region_cost,
)

TWO_TARGETS = (Target("cpu", 1), Target("cpu", 2))
HOSTILE = "</script><script>alert('x')</script><img src=x onerror=y>"


def page(record: RunRecord) -> str:
    """The report without the text of plotly.js."""
    return report_html(record).replace(plotly.offline.get_plotlyjs(), "")


def figures(html: str) -> list[Any]:
    found = re.findall(r'<script type="application/json" id="figure-\d+">(.*?)</script>', html, flags=re.DOTALL)
    return [json.loads(text) for text in found]


def traces(html: str) -> dict[str, Any]:
    return {trace["name"]: trace for trace in figures(html)[0]["data"]}


class _Outline(HTMLParser):
    """Which tags are open, and every tag and attribute that was seen."""

    VOID = ("meta", "link", "img", "br", "input", "hr")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def outline(html: str) -> _Outline:
    parser = _Outline()
    parser.feed(html)
    parser.close()
    return parser


@pytest.mark.parametrize(
    "record",
    [
        a_record(),
        a_record(a_front(), evaluations=(), regions=()),
        a_record(a_front(a_member(targets=TWO_TARGETS, note="Mind the step."), targets=TWO_TARGETS), notes=("One.",)),
    ],
    ids=["small", "float alone", "two targets"],
)
def test_the_page_is_well_formed_and_refers_to_nothing_outside(record: RunRecord) -> None:
    found = outline(page(record))

    assert found.open == []
    assert not {"link", "img", "iframe"} & set(found.seen)
    assert not {"src", "href"} & {name for name, _ in found.attributes}
    assert any("default-src 'none'" in (value or "") for _, value in found.attributes)


def test_plotly_is_in_the_page() -> None:
    assert plotly.offline.get_plotlyjs() in report_html(a_record())


def test_equal_records_give_equal_pages() -> None:
    assert report_html(a_record()) == report_html(a_record())


def test_text_from_the_user_is_escaped() -> None:
    member = a_member(HOSTILE, assignment={HOSTILE: HOSTILE}, note=HOSTILE)
    front = replace(a_front(member), model_path=f"dir/{HOSTILE}", model_sha256=HOSTILE)
    record = replace(
        a_record(
            front,
            evaluations=(a_measured(0, assignment={HOSTILE: HOSTILE}), a_failure(1, reason=HOSTILE)),
            regions=(a_region(HOSTILE, op_types=(HOSTILE,)),),
            configuration={HOSTILE: HOSTILE},
            notes=(HOSTILE,),
        ),
        environment={HOSTILE: {HOSTILE: [HOSTILE]}},
        phases={HOSTILE: 1.0},
    )

    html = page(record)

    assert "img" not in outline(html).seen
    assert outline(html).seen.count("script") == outline(page(a_record())).seen.count("script")
    hovers = [text for trace in figures(html)[0]["data"] for text in trace.get("hovertext", trace.get("text", ()))]
    assert hovers
    assert not any("<script" in text or "<img" in text for text in hovers)


def test_the_headline_heads_the_page() -> None:
    html = page(a_record())

    assert "<h1>Fastest model that keeps 40 dB: 0.50 of float&#39;s latency (0.49 to 0.51)," in html


def test_a_member_with_equal_outputs_is_in_the_table_only() -> None:
    html = page(a_record(a_front(a_member("same", snr_db=math.inf)), evaluations=()))

    assert figures(html) == []
    assert ">equal<small>search equal</small>" in html
    assert "No measured SNR and latency to draw." in html


def test_each_target_has_its_plot() -> None:
    html = page(a_record(a_front(a_member(targets=TWO_TARGETS), targets=TWO_TARGETS)))

    assert len(figures(html)) == 2
    assert "<h3>cpu-1t</h3>" in html
    assert "<h3>cpu-2t</h3>" in html


def test_each_region_shows_what_each_member_gives_it() -> None:
    html = page(a_record(a_front(a_member("m1", assignment={"r0": "u8s8", "r1": "u16s8"}))))

    assert re.findall(r'title="(r\d), m1: (\w+)">(\w*)</td>', html) == [
        ("r0", "u8s8", "u8s8"),
        ("r1", "u16s8", "u16s8"),
        ("r2", "float", ""),
    ]
    assert "2 Add, MatMul" in html


def test_long_scheme_names_are_lettered() -> None:
    html = page(a_record(a_front(a_member("m1", assignment={"r0": "u8s8", "r1": "u8s8-percentile"}))))

    assert re.findall(r'title="(r\d), m1: ([\w-]+)">(\w*)</td>', html)[:2] == [
        ("r0", "u8s8", "A"),
        ("r1", "u8s8-percentile", "B"),
    ]


def test_the_float_model_alone_makes_a_page() -> None:
    html = page(a_record(a_front(), evaluations=()))

    assert "<h1>No quantized candidate was measured: the float model alone is on the front.</h1>" in html
    assert "No evaluations." in html
    assert figures(html) == []


def test_failures_are_counted_by_reason() -> None:
    html = page(a_record(evaluations=(a_failure(0), a_failure(1), a_failure(2, stage="measure", reason="crash"))))

    assert re.findall(r'anywhere">([^<]*)</td><td class="n">(\d+)', html) == [
        ("build: no range for &#39;x&#39;", "2"),
        ("measure: crash", "1"),
    ]


def test_agreement_of_integer_outputs_is_told() -> None:
    quality = Quality(per_output={"logits": 40.0}, agreement={"classes": 0.984}, n_samples=64)

    assert "classes: 98.4 % agree" in page(a_record(a_front(replace(a_member(), quality=quality))))


def test_environment_configuration_phases_and_notes_are_there() -> None:
    html = page(a_record(configuration={"min_snr_db": None, "resume": False}, notes=("The data were split.",)))

    assert "Imaginary 9000" in html
    assert "onnxruntime 1.30" in html
    assert '<th scope="row">min snr db</th><td>not given</td>' in html
    assert '<th scope="row">resume</th><td>no</td>' in html
    assert "10.0 seconds in all phases." in html
    assert "<li>The data were split.</li>" in html


def test_members_show_their_metrics_and_the_parts_of_the_data() -> None:
    html = page(a_record(a_front(a_member("m1", snr_db=40.0, drops={HOSTILE: 0.03}))))

    assert "search 41.0 dB (40.0 to 42.0)" in html
    assert "held out 39.0 dB (38.0 to 40.0)" in html
    assert "<small>held out 4.00 (2.00 to 6.00)</small>" in html
    assert ">0.87<small>" in html
    assert "img" not in outline(html).seen


def test_without_parts_nothing_is_said_of_them() -> None:
    html = page(a_record(a_front(replace(a_member(), snr_search=None, snr_held_out=None))))

    assert "held out" not in html
    assert "held-out" not in html


def test_a_metric_that_takes_the_place_of_snr_is_told_and_drawn() -> None:
    goals = Objectives(has_snr=False, metrics=parse_metrics(["top1"])).goals
    front = replace(a_front(a_member("m1", ratio=0.5, drops={"top1": 0.02})), objectives=goals)
    html = page(a_record(front, evaluations=(a_measured(0, drops={"top1": 0.01}), a_measured(1))))

    assert "Objectives: higher top1, lower latency." in html
    assert traces(html)["evaluated"]["y"] == [-1.0]
    assert "further up is better in top1" in html
    assert "at top1 no worse" in html


def test_a_metric_that_is_better_when_lower_is_told_with_its_own_sign() -> None:
    goals = Objectives(has_snr=False, metrics=parse_metrics(["error=tasks:error:min"])).goals
    members = a_member("m1", ratio=0.5, drops={"error": 0.02}), a_member("m2", ratio=0.7, drops={"error": 0.01})
    html = page(a_record(replace(a_front(*members), objectives=goals)))

    assert "<h1>Fastest model: 0.50 of float&#39;s latency (0.49 to 0.51), error is worse by 2 %," in html


def test_the_ledger_shows_fifteen_rows_and_unfolds_the_others() -> None:
    regions = tuple(a_region_cost(f"r{i:02d}", snr_db=60.0 - i) for i in range(17))
    html = page(a_record(ledger=a_ledger(regions, (a_border_cost("x", "y"),))))
    ledger = html[html.index("<h2>Ledger</h2>") :]
    shown, rest = ledger.split("<details>")
    unfolded = rest[: rest.index("</details>")]

    assert [f"r{i:02d}</th>" in shown for i in range(17)] == [True] * 15 + [False] * 2
    assert unfolded.startswith("<summary>The other 2</summary>")
    assert "r16</th>" in unfolded
    assert '<td class="n">-120<small>-122 to -118</small></td>' in shown
    assert '<td class="n">25.0 %<small>20.0 to 30.0</small></td>' in shown
    assert '<td class="n">+15.0<small>+13.0 to +17.0</small></td>' in rest


@pytest.mark.parametrize("ledger", [a_ledger(), a_ledger(borders=()), a_ledger((a_region_cost(HOSTILE),))])
def test_a_page_with_a_ledger_is_well_formed(ledger: Ledger) -> None:
    found = outline(page(a_record(ledger=ledger)))

    assert found.open == []
    assert "img" not in found.seen


def test_a_ledger_has_a_column_for_each_target() -> None:
    front = a_front(a_member(targets=TWO_TARGETS), targets=TWO_TARGETS)
    ledger = a_ledger((a_region_cost(targets=TWO_TARGETS),), (a_border_cost(targets=TWO_TARGETS),))

    assert page(a_record(front, ledger=ledger)).count('<th class="n">µs cpu-2t</th>') == 2


def test_a_run_without_a_ledger_says_nothing_of_it() -> None:
    assert "ledger</h2>" not in page(a_record()).lower()


def test_a_member_has_the_price_of_its_decibels() -> None:
    front = a_front(a_member("m1", ratio=0.5, snr_db=30.0), a_member("m2", ratio=0.6, snr_db=40.0))

    assert '<td class="n">+100<small>from m1</small></td>' in page(a_record(front))
    assert "µs per dB" not in page(a_record())
