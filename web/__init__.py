"""Accepts, streams, cancels and shows runs over HTTP; never runs an agent.

Law: whatever mentions a request, a header or a page lives here, and Flask is imported nowhere else. May
import ``shared``, never ``worker``. Imports go one way:
``services < identity, problems, hub < api, ops, commands < factory``.
"""

from web.factory import create_app

__all__ = ["create_app"]
