"""What a run is: its identity, its statuses and what may follow, its outcome, and who may do what.

Law: pure values and tables, no I/O, no clock, no Redis, no HTTP; imports nothing of the other rooms.
"""
