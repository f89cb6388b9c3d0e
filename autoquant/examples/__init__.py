"""Models and data that ship with the package."""
