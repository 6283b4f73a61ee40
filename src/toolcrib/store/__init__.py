"""What is remembered: calls and their proof, receipts, pins, approvals, jobs and more. One database, of two kinds."""
