"""Result processing: normalised, redacted, within its budget, with large outputs kept as artifacts."""
