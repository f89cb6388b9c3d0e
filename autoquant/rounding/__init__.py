"""Integers of weights chosen for the error of an operator's output instead of that of each weight."""
