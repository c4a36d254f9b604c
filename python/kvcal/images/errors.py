"""The error of everything that a user can mend."""

from __future__ import annotations


class BadInput(Exception):
    """Says the place, what was found there, and what was expected."""
