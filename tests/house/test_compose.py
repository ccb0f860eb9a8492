"""The compose file, checked by its properties: no container engine is needed for that."""

from __future__ import annotations

import re

import pytest
import yaml

from shared.settings import Settings


@pytest.fixture(scope="module")
def compose(root) -> dict:
    return yaml.safe_load((root / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def services(compose) -> dict:
    return compose["services"]


def seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+)s", text)
    assert match, text
    return float(match[1])


def test_it_is_redis_and_one_image_for_web_and_worker(services):
    assert set(services) == {"redis", "web", "worker"}
    assert services["web"]["image"] == services["worker"]["image"]
    assert services["web"]["build"] == "."


@pytest.mark.parametrize("name", ["redis", "web", "worker"])
def test_every_service_restarts_is_checked_and_has_an_init(services, name):
    service = services[name]
    assert service["restart"] == "unless-stopped"
    assert service["init"] is True
    assert isinstance(service["command"], list)
    check = service["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries"} <= set(check)


def test_redis_keeps_an_append_only_file_in_a_named_volume_and_evicts_nothing(compose, services):
    words = services["redis"]["command"]
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert options == {"--appendonly": "yes", "--appendfsync": "everysec", "--maxmemory-policy": "noeviction"}
    assert services["redis"]["volumes"] == ["redis-data:/data"]
    assert "redis-data" in compose["volumes"]
    assert "ports" not in services["redis"]


@pytest.mark.parametrize("name", ["web", "worker"])
def test_the_halves_wait_for_a_healthy_redis(services, name):
    assert services[name]["depends_on"] == {"redis": {"condition": "service_healthy"}}
    assert services[name]["environment"]["OUTLAST_REDIS_URL"] == "redis://redis:6379/0"


def test_the_worker_gets_longer_to_stop_than_its_drain_takes(services):
    drain = services["worker"]["environment"]["OUTLAST_DRAIN_SECONDS"]
    default = float(re.search(r":-(\d+)", drain)[1])
    assert default == Settings.model_fields["drain_seconds"].default
    assert seconds(services["worker"]["stop_grace_period"]) > default + 5
    assert seconds(services["web"]["stop_grace_period"]) > 5


def test_only_the_own_machine_reaches_the_web_server(services):
    assert [port.split(":")[0] for port in services["web"]["ports"]] == ["127.0.0.1"]


def test_every_variable_is_a_setting(services):
    known = {f"OUTLAST_{name.upper()}" for name in Settings.model_fields}
    for name in ("web", "worker"):
        assert set(services[name]["environment"]) <= known


def test_the_image_runs_as_an_ordinary_user_by_exec_form_commands(root):
    lines = (root / "Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users[-1:] == ["outlast"]
    commands = [line for line in lines if re.match(r"(CMD|ENTRYPOINT) ", line)]
    assert all(re.match(r"\w+ \[", line) for line in commands)
    assert lines[-1] in commands


def test_the_image_holds_what_it_copies(root):
    allowed = {line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (.+) \S+$", (root / "Dockerfile").read_text(), flags=re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    assert sources == allowed
    assert all((root / source).exists() for source in sources)
