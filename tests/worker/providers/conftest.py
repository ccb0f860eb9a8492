"""One stalling provider for all tests of a session, and clients that build fast."""

from __future__ import annotations

import gc
import ssl
from collections.abc import Iterator

import pytest

from tests.stalling_provider import StallingProvider

# The libraries' own affairs: google-genai derives from a class that aiohttp wants left alone and sends a
# body in one piece, and some leave sockets to the garbage collector when they fail.
FOREIGN_WARNINGS = (
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning",
    "ignore:Sending a large body:ResourceWarning",
    "ignore:unclosed:ResourceWarning",
)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Lets these warnings pass in this folder alone."""
    for warning in FOREIGN_WARNINGS:
        item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def provider() -> Iterator[StallingProvider]:
    """Opened fault by fault, as it is asked for."""
    with StallingProvider() as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def _what_libraries_left_open_is_collected_here() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def _no_certificates_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody here gets as far as a certificate, and loading the usual ones takes longer than a request."""
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)
