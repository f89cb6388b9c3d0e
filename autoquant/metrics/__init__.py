"""What the user wants of the outputs, beside SNR."""
