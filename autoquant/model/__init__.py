"""ONNX models as values: the one door to ``onnx``."""
