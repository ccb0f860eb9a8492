"""Imported by an agent while it runs."""

WORD = "late"
