"""Background jobs: granted calls that outlive the answer to their callers."""
