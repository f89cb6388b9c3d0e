"""Which evaluations nothing else beats."""
