"""What the store says when Redis does not answer.

StoreError
 +-- StoreUnavailable    the command was not carried out
 +-- StoreUncertain      the answer was lost: it may or may not have been carried out; ask again
 +-- StoreFull           Redis is at its memory limit and refused to write
"""

from __future__ import annotations


class StoreError(Exception):
    """Redis could not serve the request."""


class StoreUnavailable(StoreError):
    """Redis could not be reached; nothing was written."""


class StoreUncertain(StoreError):
    """The answer of Redis was lost; the write may have happened, so ask again with the same identity."""


class StoreFull(StoreError):
    """Redis is at its memory limit and takes no new runs until some have expired."""
