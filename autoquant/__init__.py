"""Accuracy-latency auto-tuning of mixed-precision QDQ models for onnxruntime."""
