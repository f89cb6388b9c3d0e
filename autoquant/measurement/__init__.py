"""Latency, quality, and what really runs."""
