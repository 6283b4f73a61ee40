"""What comes back, made fit to read: normalised, free of secrets, within its budget, the rest kept as an artifact."""
