"""From samples to calibration ranges."""
