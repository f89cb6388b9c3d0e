"""What runs inside a tool's own environment: each module has ``make(task)`` and imports nothing of autoquant."""
