"""How fast autoquant is, against the demands that it was built for; see ``experiments.bench.speed``."""
