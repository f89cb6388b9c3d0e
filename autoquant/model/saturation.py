"""The smallest model in which a kernel may saturate."""

import onnx
from onnx import parser

__all__ = ["EXACT", "two_products"]

EXACT = 130
"""What ``two_products`` makes of the inputs 255 and 255: 2 * 255 * 127 / 500; 66 where a kernel adds the
two products in an int16."""

_TWO_PRODUCTS = """
<ir_version: 9, opset_import: ["" : 19]>
two_products (uint8[1, 2] x) => (uint8[1, 1] y)
<int8[2, 1] w = {127, 127}, float one = {1.0}, float wide = {500.0}, uint8 zero = {0}, int8 zero_of_w = {0}>
{
    a = DequantizeLinear(x, one, zero)
    b = DequantizeLinear(w, one, zero_of_w)
    c = MatMul(a, b)
    y = QuantizeLinear(c, wide, zero)
}
"""


def two_products() -> bytes:
    """``y = (127 * x[0] + 127 * x[1]) / 500`` as QDQ model, u8 inputs of shape (1, 2), s8 weights."""
    model: onnx.ModelProto = parser.parse_model(_TWO_PRODUCTS)
    return model.SerializeToString()
