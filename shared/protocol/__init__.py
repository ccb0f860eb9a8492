"""The AG-UI 1.0 wire: its events, their order, their JSON and their SSE frames.

Law of this package: pure code. It does no I/O, reads no clock and no environment, and knows
neither stores, queues, HTTP nor agents. It is the only place that imports ``ag_ui``; everybody
else takes the protocol's types from ``shared.protocol.events``.
"""
