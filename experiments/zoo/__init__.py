"""Real models from package registries, with realistic data; ``python -m experiments.zoo OUT``."""
