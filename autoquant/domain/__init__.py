"""Values that pass between the stages: frozen, without effects."""
