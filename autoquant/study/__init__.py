"""The Optuna study: what to evaluate next, and where it is kept."""
