"""Jobs: many models searched one after another, and what became of each."""
