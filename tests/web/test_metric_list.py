"""The list of metrics is what is served."""

from __future__ import annotations

from shared.runs.outcome import FailureCode, Outcome
from tests.web.operators import Desk, desk
from web.ops.metric import METRICS
from web.ops.metrics import families
from web.services import services

__all__ = ["desk"]


def test_metrics_and_labels_are_those_of_the_list_and_in_its_order(desk: Desk):
    desk.worker.run(desk.submit("r1"), outcome=Outcome.failed(FailureCode.TRANSPORT_TIMEOUT))
    with desk.app.test_request_context():
        served = list(families(services()))
    assert sorted(found.metric.name for found in served) == sorted(METRICS)
    for found in served:
        for suffix, labels, _ in found.samples:
            assert tuple(label for label in labels if label != "le") == found.metric.labels
            assert bool(suffix) == (found.metric.kind == "histogram")
        assert found.samples, f"{found.metric.name} has no sample before something went wrong"
