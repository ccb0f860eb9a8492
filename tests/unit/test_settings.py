"""Settings from the environment."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from shared.settings import Settings, child_environment, describe


def test_plain_redis_url_is_honoured_and_ours_wins(monkeypatch):
    monkeypatch.setenv("REDIS_URL", "redis://a:1/0")
    assert Settings().redis_url == "redis://a:1/0"
    monkeypatch.setenv("OUTLAST_REDIS_URL", "redis://b:2/0")
    assert Settings().redis_url == "redis://b:2/0"


def test_a_wrong_value_names_its_variable(monkeypatch):
    monkeypatch.setenv("OUTLAST_LEASE_SECONDS", "soon")
    with pytest.raises(ValidationError, match="lease_seconds"):
        Settings()


def test_an_unknown_scheme_is_refused():
    with pytest.raises(ValidationError, match="redis://"):
        Settings(redis_url="http://x")


def test_a_unix_socket_is_spelled_as_celery_wants_it():
    assert (
        Settings(redis_url="unix:///tmp/s.sock").celery_broker_url
        == "redis+socket:///tmp/s.sock?virtual_host=0"
    )
    assert Settings(redis_url="unix:///tmp/s.sock?db=3").celery_broker_url.endswith("virtual_host=3")


def test_settings_do_not_change():
    with pytest.raises(ValidationError):
        Settings().lease_seconds = 3


def test_secrets_are_not_shown():
    shown = describe(
        Settings(redis_url="redis://:hunter2@host:1/0", jwt_secret="hunter2", chat_api_key="hunter2")
    )
    assert "hunter2" not in str(shown)


def test_origins_are_split_at_commas(monkeypatch):
    monkeypatch.setenv("OUTLAST_CORS_ORIGINS", "http://a.test/, http://b.test")
    assert Settings().cors_origins == ("http://a.test", "http://b.test")


def test_a_childs_environment_is_ours_with_changes(monkeypatch):
    monkeypatch.setenv("KEEP", "1")
    monkeypatch.setenv("DROP", "1")
    environment = child_environment(DROP=None, NEW="2")
    assert (environment["KEEP"], environment["NEW"], "DROP" in environment) == ("1", "2", False)
