"""Operators that compute each number from those at its place alone."""

__all__ = ["BROADCASTING", "FUNCTIONS"]

FUNCTIONS = frozenset(
    {
        *("Abs", "Atan", "Ceil", "Celu", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid"),
        *("HardSwish", "Identity", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu"),
        *("Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu"),
        *("com.microsoft:Gelu", "com.microsoft:QuickGelu"),
    }
)
"""Of one tensor of floats, whatever else they read are bounds of all of it."""
BROADCASTING = frozenset({"Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub", "Sum"})
"""Of floats, of several tensors."""
