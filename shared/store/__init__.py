"""Redis, and the only place that says so: clients, keys, scripts, records, logs, leases, the sweep.

Law: every key, channel, script and time-to-live lives here; `redis` is imported nowhere else. May import
``shared.protocol``, ``shared.runs`` and ``shared.settings``; knows neither HTTP nor agents nor Celery.
"""
