"""What both halves stand on: settings, logs, the AG-UI wire, what a run is, Redis and the queue.

Law: nothing in here knows an HTTP request or an agent. Imports go one way:
``settings, logs < protocol | runs < store < queue``; ``local`` stands beside them and knows settings only.
"""
