"""From an assignment to a mixed-precision QDQ model."""
