"""Float models written otherwise, so that onnxruntime has faster kernels, or integer ones, for them."""
