"""Executes runs: claims them, runs their agents, turns what comes out into events and one recorded outcome.

Law: this package knows agents and providers, never HTTP requests; it imports ``shared`` and never
``web``. Provider libraries are imported in ``worker.agents`` only, Celery in ``worker.celery`` only.
"""
