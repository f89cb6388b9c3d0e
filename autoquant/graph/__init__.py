"""From the user's file to a prepared model and its regions."""
