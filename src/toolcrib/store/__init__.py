"""What is remembered: calls, intents, receipts of repeated requests, accepted definitions. One SQLite file."""
