"""Rescaling of channels that leaves what the float model computes as it is."""
