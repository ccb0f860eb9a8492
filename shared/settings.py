"""Frozen settings from the environment; the only module that reads ``os.environ``."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

SOCKET_NOTE = Path(".outlast") / "redis.url"
"""Where a locally started server leaves its address, so that plain ``celery`` and ``flask`` find it."""

EXIT_MISCONFIGURED = 78
"""Exit status (``EX_CONFIG`` of sysexits.h) of a worker whose agents cannot be loaded: starting it again
does not help."""


def _local_redis_url() -> str:
    try:
        return SOCKET_NOTE.read_text().strip() or "redis://127.0.0.1:6379/0"
    except OSError:
        return "redis://127.0.0.1:6379/0"


class Settings(BaseSettings):
    """Every setting of Outlast; each is read from ``OUTLAST_<NAME>``.

    Raises pydantic's ``ValidationError`` naming the variable when a value does not fit.
    """

    model_config = SettingsConfigDict(
        env_prefix="OUTLAST_", frozen=True, extra="ignore", populate_by_name=True, hide_input_in_errors=True
    )

    redis_url: str = Field(
        default_factory=_local_redis_url,
        validation_alias=AliasChoices("OUTLAST_REDIS_URL", "REDIS_URL"),
        description="Redis with the record, the log and the channels; `redis://`, `rediss://` or `unix://`.",
    )
    broker_url: str | None = Field(
        default=None,
        validation_alias=AliasChoices("OUTLAST_BROKER_URL", "CELERY_BROKER_URL"),
        description="Celery's broker; absent means the same Redis.",
    )
    queue: str = Field(default="outlast", description="Name of the Celery queue that carries run keys.")
    agents: str | None = Field(
        default=None,
        description="Your agents: `package.module:NAME`, NAME being a mapping from agent name to a callable; "
        "several separated by commas.",
    )
    verify: bool = Field(default=True, description="Check every emitted event against the ordering rules.")

    lease_seconds: float = Field(
        default=20, gt=0, description="How long a worker's claim lives without being renewed."
    )
    sweep_seconds: float = Field(default=2, gt=0, description="Pause between two passes of the sweep.")
    drain_seconds: float = Field(
        default=25, ge=0, description="How long a worker told to stop lets its running runs go on."
    )
    cancel_grace_seconds: float = Field(
        default=10, gt=0, description="Time an agent has to end by itself after its token tripped."
    )
    heartbeat_seconds: float = Field(
        default=15, gt=0, description="Idle time after which a stream gets a comment line."
    )
    stalled_seconds: float = Field(
        default=120, gt=0, description="A running run without an event for this long is shown as stalled."
    )
    queued_long_seconds: float = Field(
        default=60, gt=0, description="A ready run that no worker took for this long is shown as such."
    )
    abandoned_share: float = Field(
        default=0.25,
        gt=0,
        le=1,
        description="Share of a worker's slots that abandoned agents may hold; beyond it the worker drains, "
        "exits with 1 and is to be restarted.",
    )
    loop_blocked_seconds: float = Field(
        default=30,
        gt=0,
        description="The same when something blocks the worker's asyncio loop for this long.",
    )
    run_deadline_seconds: float = Field(
        default=3600, gt=0, description="Longest time from claim to ending; then `deadline_exceeded`."
    )
    queue_timeout_seconds: float = Field(
        default=900, gt=0, description="Longest wait for a worker once ready; then `queue_timeout`."
    )
    retention_seconds: float = Field(
        default=86_400, gt=0, description="How long an ended run stays readable."
    )
    tombstone_seconds: float = Field(
        default=604_800, gt=0, description="How long an expired run's identity is kept from running anew."
    )
    audit_seconds: float = Field(
        default=7_776_000, gt=0, description="How long the audit of what operators did is kept."
    )

    max_events_per_run: int = Field(default=200_000, gt=0, description="Events in one run's log.")
    max_bytes_per_run: int = Field(default=64 * 2**20, gt=0, description="Bytes in one run's log.")
    max_bytes_per_event: int = Field(default=4 * 2**20, gt=0, description="Bytes of one event on the wire.")
    max_bytes_per_request: int = Field(default=8 * 2**20, gt=0, description="Bytes of one request body.")
    max_input_depth: int = Field(default=100, gt=0, le=128, description="Nesting levels of a request body.")
    max_active_runs_per_actor: int = Field(
        default=200, gt=0, description="Queued and running runs of one actor; a soft limit."
    )
    max_waiting_per_thread: int = Field(
        default=16, ge=0, description="Runs that may wait for their turn on one thread."
    )
    max_streams: int = Field(default=5000, gt=0, description="Open streams in one web process.")
    reader_timeout_seconds: float = Field(
        default=120, gt=0, description="A reader that takes nothing for this long is dropped."
    )

    auth: Literal["keys", "none"] = Field(
        default="keys",
        description="`keys`: bearer tokens (API keys, and JWT if configured); "
        "`none`: direct loopback peers only.",
    )
    jwt_secret: SecretStr | None = Field(default=None, description="Shared secret for HS256 tokens.")
    jwt_jwks_url: str | None = Field(default=None, description="Where the public keys for signed tokens are.")
    jwt_audience: str | None = Field(default=None, description="Audience that a token must name.")
    jwt_issuer: str | None = Field(default=None, description="Issuer that a token must name.")
    jwt_roles_claim: str = Field(default="roles", description="Claim that lists an operator's roles.")
    metrics_public: bool = Field(
        default=False, description="Serve `/metrics` without authentication, to whoever can reach it."
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Browser origins that may call, separated by commas."
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        validation_alias=AliasChoices("OUTLAST_LOG_LEVEL", "LOG_LEVEL"),
        description="Lowest level that is written.",
    )
    log_format: Literal["json", "text"] = Field(
        default="json", description="One JSON object per line, or text for people."
    )
    tracing: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="OpenTelemetry traces, with the extra `otel`; `auto`: on where "
        "`OTEL_EXPORTER_OTLP_ENDPOINT` (or `…_TRACES_ENDPOINT`) is set.",
    )

    chat_base_url: str | None = Field(
        default=None, description="Base URL of the OpenAI-compatible endpoint of the `chat` agent."
    )
    chat_api_key: SecretStr | None = Field(default=None, description="Its key.")
    chat_model: str | None = Field(default=None, description="Its model; `chat` is offered when this is set.")
    chat_timeout_seconds: float = Field(
        default=60, gt=0, description="Connect, read and write timeout of one request of `chat`."
    )
    chat_max_retries: int = Field(
        default=0, ge=0, description="Repeats of a request that failed before its first byte."
    )

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip().rstrip("/") for part in value.split(",") if part.strip())
        return value

    @field_validator("redis_url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        if value.split("://", 1)[0] not in {"redis", "rediss", "unix"}:
            raise ValueError("must start with redis://, rediss:// or unix://")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only arguments and the environment decide; ``.env`` files are the Flask command's business."""
        return (init_settings, env_settings)

    @property
    def celery_broker_url(self) -> str:
        """The broker in Celery's spelling (a Unix socket is ``redis+socket://``)."""
        url = self.broker_url or self.redis_url
        if url.startswith("unix://"):
            path, _, query = url.removeprefix("unix://").partition("?")
            number = dict(part.split("=", 1) for part in query.split("&") if "=" in part).get("db", "0")
            return f"redis+socket://{path}?virtual_host={number}"
        return url

    @property
    def broker_is_store(self) -> bool:
        """Whether queue messages may be pushed through the store's own connection."""
        return self.broker_url is None or self.broker_url == self.redis_url


@lru_cache(maxsize=1)
def load() -> Settings:
    """The process-wide settings, read once."""
    return Settings()


def child_environment(**overrides: str | None) -> dict[str, str]:
    """This process's environment for a child process; an override of ``None`` removes the variable."""
    environment: dict[str, str] = dict(os.environ)
    for name, value in overrides.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment


def variable(name: str) -> str | None:
    """One raw environment variable that is not a setting of ours, such as ``PORT``."""
    return os.environ.get(name)


def describe(settings: Settings) -> dict[str, Any]:
    """Settings as they may be shown: secrets and passwords in addresses masked."""
    shown = settings.model_dump(mode="json")
    for name in ("redis_url", "broker_url"):
        url = shown.get(name)
        if isinstance(url, str) and "@" in url:
            scheme, rest = url.split("://", 1)
            shown[name] = f"{scheme}://***@{rest.rsplit('@', 1)[1]}"
    return shown
