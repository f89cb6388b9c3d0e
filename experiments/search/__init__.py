"""How near to the optimum a search comes, and how soon, by our sampler and by others.

``experiments.search.enumerate``, ``experiments.search.optimum`` and ``experiments.search.versus``.
"""
