"""Whether measurements can be believed: differences where there are none, known differences, and the same search again.

``experiments.believe.aa``, ``experiments.believe.truth`` and ``experiments.believe.reproducibility``.
"""
