from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from autoquant.rewrites.channels import Channels
from tests.models import floats, model_of


def test_sizes_must_be_known() -> None:
    model = model_of("(float[1,n,4,4] x) => (float[a,b,h,w] y)", "r = Relu(x) y = Relu(r)", {"unused": 0.0})
    assert Channels(Graph(model)).size(TensorName("r")) is None


def test_tensors_between_convolutions_have_one_root_and_what_others_read_is_fixed() -> None:
    body = "c = Conv(x, w) r = Relu(c) s = Sigmoid(r) y = Flatten(s)"
    channels = Channels(Graph(model_of("(float[1,3,4,4] x) => (float[1,n] y)", body, {"w": floats(5, 3, 1, 1)})))
    root = channels.root(TensorName("c"))
    assert [channels.root(TensorName(name)) == root for name in "xcrs"] == [False, True, True, True]
    assert root in channels.fixed
    assert [(each.tensor, each.slot, each.axis) for each in channels.followers] == [("x", 1, 1), ("c", 1, 0)]
