"""Ranking by meaning, optional: a small local model turns texts into vectors, and near vectors mean alike."""
