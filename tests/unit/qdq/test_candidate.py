import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.scheme import Rounding, Scheme
from autoquant.qdq.candidate import Candidate
from tests.graphs import U8S8_CHANNEL, U8S8_TENSOR, U16S8, case_of, opened, scheme
from tests.models import a_convnet


def candidate(skeleton: bytes = b"model", variants: dict[str, str] | None = None) -> Candidate:
    return Candidate(
        skeleton=skeleton,
        constants={"w": np.zeros(3, np.float32)},
        variants=variants or {},
        integer_nodes=frozenset(),
        float_nodes=frozenset(),
    )


@given(st.dictionaries(st.text(), st.text()))
def test_the_digest_ignores_the_order_of_the_variants(variants: dict[str, str]) -> None:
    turned = dict(reversed(variants.items()))
    assert candidate(variants=variants).digest == candidate(variants=turned).digest


def test_the_digest_tells_variants_of_a_constant_apart() -> None:
    digests = {candidate(variants={"w": label}).variants_digest for label in ("s8:tensor:sym", "s8:channel:sym", "")}
    assert len(digests) == 3


def test_the_digest_tells_skeletons_apart() -> None:
    assert candidate(b"a").digest != candidate(b"b").digest
    assert candidate(b"a").variants_digest == candidate(b"b").variants_digest


def test_the_size_counts_the_constants_that_the_skeleton_leaves_out() -> None:
    assert candidate(b"model").size_bytes == 5 + 3 * 4


@pytest.mark.parametrize(
    ("taken", "opset"),
    [
        (U8S8_TENSOR, 10),
        (scheme("u8:tensor:asym", "s8:channel:sym", ranges="dynamic"), 11),
        (U8S8_CHANNEL, 13),
        (U16S8, 21),
        (scheme("u8:tensor:asym", "s16:channel:sym"), 21),
    ],
    ids=str,
)
def test_a_scheme_is_written_from_its_opset_on_and_not_before(taken: Scheme, opset: int) -> None:
    assert taken.opset == opset
    assert opened(case_of(a_convnet(opset)).quantized(taken).model)
    with pytest.raises(Exception, match="INVALID_GRAPH"):
        opened(case_of(a_convnet(opset - 1)).quantized(taken).model)


def test_it_says_by_which_roundings_its_constants_were_rounded() -> None:
    labels = {
        "v": "s8:channel:sym:axis-0:gptq-0123456789ab",
        "w": "s8:channel:sym:axis-0",
        "b_quantized": "0123456789ab",
    }
    assert candidate(variants=labels).roundings == {Rounding.GPTQ}
    assert candidate(variants={"w": "s8:tensor:sym"}).roundings == frozenset()
