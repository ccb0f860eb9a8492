"""What those who run Outlast look at: health, and whatever else tells about everybody's runs.

Law: views for operators and their machines; an agent's caller never needs this package. Imported by
``web.factory`` only.
"""
