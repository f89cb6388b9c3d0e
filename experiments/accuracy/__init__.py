"""What algorithms that change numbers, and not kernels, do for the quality of quantized models."""
