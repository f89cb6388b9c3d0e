"""What autoquant is measured with: real models, recipes of others, independent measurements, results."""
