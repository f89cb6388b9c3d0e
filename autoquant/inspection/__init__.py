"""What really runs of a model, and why it is not what the file says."""
