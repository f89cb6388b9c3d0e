"""Schemes whose ranges are found at run time."""

from pathlib import Path

import pytest

from autoquant.domain.accuracy import Accuracy
from autoquant.domain.scheme import BiasCorrection
from autoquant.space.schema import read_space
from tests.unit.space.files import read, refused, text

DYNAMIC = 'activation = "u8:tensor:asym"\nweight = "s8:channel:sym"\nranges = "dynamic"\n'
BLOCKS_ALIKE = (
    "takes blocks of activations and weights alike, write 's8:block-32:sym' for both, or 's4:block-32:sym' for weights"
)


@pytest.mark.parametrize("accuracy", Accuracy)
def test_no_level_of_accuracy_corrects_biases_of_a_dynamic_scheme(tmp_path: Path, accuracy: Accuracy) -> None:
    space = read(tmp_path, text(scheme_a="\n" + DYNAMIC), accuracy=accuracy)
    assert space.schemes[0].bias is BiasCorrection.NONE
    assert (space.has_dynamic, space.has_static) == (True, True)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (DYNAMIC.replace("u8", "s8"), "goes with 'u8:tensor:asym' alone, activation is 's8:tensor:asym'"),
        (DYNAMIC.replace("asym", "asym:pow2"), "goes with 'u8:tensor:asym' alone, activation is 'u8:tensor:asym:pow2'"),
        (
            DYNAMIC.replace("s8", "s16"),
            "goes with weights of 8 bits, weight is 's16:channel:sym', write e.g. 's8:channel:sym'",
        ),
        (
            DYNAMIC + 'operators = "linear"\n',
            "quantizes linear operators and LSTM in any case, leave out operators = 'linear'",
        ),
        (DYNAMIC + 'bias = "mean"\n', "leaves biases in float as they are, leave out bias = 'mean'"),
        (
            DYNAMIC.replace("channel", "block-32"),
            BLOCKS_ALIKE,
        ),
        (
            DYNAMIC.replace("u8:tensor:asym", "s8:block-16:sym").replace("s8:channel", "s8:block-32"),
            BLOCKS_ALIKE,
        ),
        (
            DYNAMIC.replace("u8:tensor", "u8:block-32").replace("s8:channel:sym", "u8:block-32:asym"),
            BLOCKS_ALIKE,
        ),
        *(
            (DYNAMIC.replace("u8:tensor:asym", "s8:block-32:sym").replace("s8:channel:sym", weight), BLOCKS_ALIKE)
            for weight in ("s16:block-32:sym", "s4:block-32:asym", "s4:block-32:sym:pow2")
        ),
        (
            DYNAMIC + 'rounding = "adaquant"\n',
            "goes with the nearest integers or with 'gptq', not with rounding = 'adaquant'",
        ),
        (
            DYNAMIC + 'rounding = "adaround"\n',
            "goes with the nearest integers or with 'gptq', not with rounding = 'adaround'",
        ),
    ],
)
def test_what_means_nothing_with_dynamic_ranges_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    assert refused(tmp_path, text(scheme_a="\n" + content)) == f"cnn.toml, schemes.a: ranges = 'dynamic' {problem}"


@pytest.mark.parametrize("weight", ["s8:block-32:sym", "s4:block-32:sym"])
def test_weights_in_blocks_have_8_or_4_bits(tmp_path: Path, weight: str) -> None:
    content = DYNAMIC.replace("u8:tensor:asym", "s8:block-32:sym").replace("s8:channel:sym", weight)
    assert str(read(tmp_path, text(scheme_a="\n" + content)).schemes[0].weight) == weight


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            DYNAMIC.replace("u8:tensor:asym", "s4:block-32:sym").replace("s8:channel:sym", "s4:block-32:sym"),
            "activation: 's4:block-32:sym': 4 bits are for weights alone, write e.g. 's8:block-32:sym'",
        ),
        (
            DYNAMIC.replace("s8", "s4"),
            "weight: 's4:channel:sym': kernels for weights of 4 bits take blocks, write e.g. 's4:block-32:sym'",
        ),
    ],
)
def test_4_bits_are_for_weights_in_blocks(tmp_path: Path, content: str, problem: str) -> None:
    assert problem in refused(tmp_path, text(scheme_a="\n" + content))


def test_blocks_without_dynamic_ranges_are_refused(tmp_path: Path) -> None:
    content = DYNAMIC.replace("s8:channel", "s8:block-32").replace("dynamic", "mse")
    expected = "cnn.toml, schemes.a: 's8:block-32:sym' goes with ranges = 'dynamic' alone, write e.g. 's8:tensor:sym'"
    assert refused(tmp_path, text(scheme_a="\n" + content)) == expected


@pytest.mark.parametrize("name", ["default", "extensive"])
def test_dynamic_schemes_are_offered_on_the_cpu(name: str) -> None:
    space = read_space(name, ep="cpu")
    assert space.has_dynamic
    assert "LSTM" in space.op_types
