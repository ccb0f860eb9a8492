"""Failure codes are an interface: none is ever spelled otherwise."""

from __future__ import annotations

from shared.runs.outcome import FailureCode

FROM_THE_CRATE = {
    "PROTOCOL",
    "SERIALIZATION",
    "PROTOCOL_VIOLATION",
    "CANCELLED",
    "DISCONNECTED",
    "EVENT_BUFFER_FULL",
    "AGENT_ERROR",
}
FROM_THE_GEM = {"transport_timeout", "worker_lost"}


def test_the_codes_are_spelled_as_their_systems_spell_them():
    assert {str(code) for code in FailureCode} >= FROM_THE_CRATE | FROM_THE_GEM


def test_no_two_codes_differ_by_case_only():
    assert len({str(code).lower() for code in FailureCode}) == len(FailureCode)
