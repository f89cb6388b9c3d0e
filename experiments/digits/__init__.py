"""Trains the embedded example: a small ResNet on scikit-learn's handwritten digits."""
