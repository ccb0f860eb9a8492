"""Who may do what."""

from __future__ import annotations

from shared.runs.access import Actor, Role, may_cancel, may_see, may_see_payloads


def test_an_owner_may_everything_with_its_own_run():
    ann = Actor("ann")
    assert all(may(ann, "ann") for may in (may_see, may_see_payloads, may_cancel))


def test_another_actor_may_nothing():
    bob = Actor("bob")
    assert not any(may(bob, "ann") for may in (may_see, may_see_payloads, may_cancel))


def test_a_viewer_sees_records_but_stops_nothing():
    viewer = Actor("op", frozenset({Role.VIEWER}))
    assert may_see(viewer, "ann")
    assert not may_cancel(viewer, "ann")


def test_an_admin_includes_operator_and_viewer_but_not_payloads():
    admin = Actor("op", frozenset({Role.ADMIN}))
    assert may_see(admin, "ann")
    assert may_cancel(admin, "ann")
    assert not may_see_payloads(admin, "ann")
    assert may_see_payloads(Actor("op", frozenset({Role.ADMIN, Role.PAYLOADS})), "ann")
