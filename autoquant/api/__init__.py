"""The public steps, and ``search``, which wires them."""
