"""Store: calls and their proof, receipts, pins, approvals, jobs and more, in one database of either of two kinds."""
