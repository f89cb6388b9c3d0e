"""Sessions, providers and the machine: the one door to ``onnxruntime``."""
