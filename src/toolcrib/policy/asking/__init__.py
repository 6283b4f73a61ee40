"""Approval questions: their text, the delivery of answers, blanket approvals, and refusals."""
