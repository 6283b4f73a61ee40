"""Registration of tools while everything runs, each for one instance: `crib.slice(Registrations)`, and over REST."""

from .registrations import Full, Limits, Registration, Registrations, Taken

__all__ = ["Full", "Limits", "Registration", "Registrations", "Taken"]
