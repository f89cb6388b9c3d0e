"""Work in a process of its own: a crash, a hang or a leak costs that process alone."""
