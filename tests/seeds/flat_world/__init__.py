"""The tools of `flat.yaml`: real files, a real shell and real git in the session's folder; the rest in its runtime."""
