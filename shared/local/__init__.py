"""Outlast on one machine: an embedded Redis-compatible server, and the supervisor behind ``make run``.

Law: this package starts, watches and stops processes, and talks to a person in a terminal. It imports the
standard library and ``shared.settings`` only. It asks Redis no more than whether it is there. It starts
``web`` and ``worker`` by command, never by import; only ``python -m shared.local`` and tests import it.
"""
