"""Files that people read."""
