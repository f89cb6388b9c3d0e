from dataclasses import replace
from pathlib import Path

import pytest

from autoquant.api import steps
from autoquant.api.data import read_search_data
from autoquant.api.preparing import Preparing
from autoquant.errors import ModelError
from autoquant.space.schema import read_space
from tests.models import floats, model_of, saved
from tests.unit.api.preparing.stubs import FACTS, Evaluating, Make

OPSET_SPACE = """
schema = 1
[ep.cpu]
schemes = ["tensor", "channel", "wide", "dynamic"]
op_types = ["Conv", "MatMul", "Relu"]
[schemes.tensor]
activation = "u8:tensor:asym"
weight = "s8:tensor:sym"
ranges = "min-max"
[schemes.channel]
activation = "u8:tensor:asym"
weight = "s8:channel:sym"
ranges = "min-max"
[schemes.wide]
activation = "u16:tensor:asym"
weight = "s8:tensor:sym"
ranges = "min-max"
[schemes.dynamic]
activation = "u8:tensor:asym"
weight = "s8:channel:sym"
ranges = "dynamic"
"""


def at_opset(preparing: Preparing, folder: Path, body: str, opset: int) -> Preparing:
    """For a model that ends in an operator which ONNX or onnxruntime cannot convert from its opset."""
    model = model_of(
        "(float[1,4,6,6] x) => (float[1,4,6,6] y)",
        f"c = Conv<pads=[1,1,1,1]>(x, w) r = Relu(c) h = MatMul(r, m) y = {body}",
        {"w": floats(4, 4, 3, 3), "m": floats(6, 6), "g": floats(2)},
        opset=opset,
    )
    (folder / "space.toml").write_text(OPSET_SPACE)
    asked = replace(
        preparing.configuration,
        model=saved(model, folder / "old.onnx"),
        calibration={"x": floats(8, 4, 6, 6)},
        evaluation={"x": floats(6, 4, 6, 6, seed=1)},
        space=str(folder / "space.toml"),
    )
    definition = steps.fitted(read_space(asked.space, ep="cpu"), asked.targets)
    data = read_search_data(asked, steps.signatures_of(asked.model))
    return replace(preparing, configuration=asked, definition=definition, data=data)


@pytest.mark.parametrize(
    ("body", "opset", "kept", "note"),
    [
        ("Hardmax<axis=1>(h)", 11, ["tensor", "dynamic"], "channel, wide: export it with opset 21 or newer"),
        ("GroupNormalization<num_groups=2>(h, g, g)", 18, ["tensor", "channel", "dynamic"], "wide: export it with"),
    ],
)
def test_schemes_that_the_opset_cannot_express_are_left_out_with_a_note(
    make: Make, tmp_path: Path, body: str, opset: int, kept: list[str], note: str
) -> None:
    preparing = at_opset(make(), tmp_path, body, opset)
    found = preparing.in_best_form(preparing.ingredients(), Evaluating([[20.0]] * 4).real, FACTS)
    assert [scheme.name for scheme in found.definition.schemes] == kept
    assert any(f"the model's opset cannot express {note}" in given for given in preparing.notes)
    bench, builder = steps.open_bench(preparing.configuration.model, preparing.data.calibration), found.builder()
    for scheme in kept:
        candidate = builder.build({region.id: scheme for region in found.regions})
        bench.opener.open(candidate.skeleton, candidate.constants)


def test_an_opset_that_can_express_no_scheme_is_an_error_that_says_which_one_could(make: Make, tmp_path: Path) -> None:
    preparing = at_opset(make(), tmp_path, "Affine<alpha=2.0, beta=1.0>(h)", 8)
    with pytest.raises(
        ModelError, match=r"no scheme of space space can be written at opset 8, .* with opset 10 or new"
    ):
        preparing.ingredients()
