"""The shipped deployments against the gateway, the image, and each other."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from balancers import BALANCERS, DEPLOY
from fleet import NAMES
from manifests import COMPOSE, KUBERNETES, ROOT, compose, containers, kustomizations, manifest, manifests

from smart_mcp_proxy import Settings, open_gateway
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.gateway.sessions.agent import DRAIN_S
from smart_mcp_proxy.settings import all_settings, load_settings
from smart_mcp_proxy.web.listening import bind
from smart_mcp_proxy.web.serve_http import serve_http

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
FILES = [COMPOSE, *sorted(path for path in DEPLOY.rglob("*") if path.suffix in {".yaml", ".cfg", ".conf", ".sh"})]
GATEWAYS = ("gateway", *NAMES)
PLACEHOLDER = "REPLACE THIS"
MANY = 10_000
"""Connections."""
SECRETS = {"database_url", "secret_key", "auth_token"}


def environment(given: dict[str, Any], secrets: Path) -> dict[str, str]:
    """Variables of a container, its secrets and its server file being elsewhere."""
    found = {name: re.sub(r"^/run/secrets/(mcpproxy/)?", f"{secrets}/", str(value)) for name, value in given.items()}
    return {name: re.sub(r"^/etc/mcpproxy", str(ROOT), value) for name, value in found.items()}


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What deploy/secrets.sh makes."""
    folder = tmp_path_factory.mktemp("made") / "secrets"
    subprocess.run([DEPLOY / "secrets.sh", folder], check=True, capture_output=True)
    return folder


def pod_environment() -> dict[str, Any]:
    """Variables of the gateway's container in a cluster."""
    (container,) = manifest("Deployment", "mcpproxy")["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"]}
    return {**manifest("ConfigMap", "mcpproxy")["data"], **given}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_setting_that_is_named_exists(file: Path) -> None:
    """In comments as well."""
    known = {setting.variable for setting in all_settings()}
    assert set(re.findall(r"MCPPROXY_\w+", file.read_text(encoding="utf-8"))) <= known


async def test_every_address_that_is_asked_for_health_is_served(tmp_path: Path) -> None:
    """By the gateway: those of probes, health checks and balancers; haproxy answers for itself at /balancer."""
    asked = set()
    for path in FILES:
        asked |= set(re.findall(r"(?:uri |path: |8000)(/[\w/]+z)\b", path.read_text(encoding="utf-8")))
    assert asked == {"/healthz", "/readyz"}
    listener = bind("127.0.0.1", 0)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with open_gateway(Settings(data_dir=tmp_path), {}, environ={}) as gateway:
        await gateway.lists.index_sync.loaded.wait()
        async with serve_http(gateway, listener, token=None), httpx2.AsyncClient(trust_env=False) as client:
            assert [(await client.get(base + path)).status_code for path in sorted(asked)] == [200, 200]


def test_a_single_gateway_is_what_compose_starts_and_the_fleet_is_a_profile() -> None:
    """Two gateways, known to the balancer by their hosts' names, with one database."""
    services = compose()["services"]
    assert [name for name, service in services.items() if "profiles" not in service] == ["gateway"]
    fleet = {name for name, service in services.items() if service.get("profiles") == ["fleet"]}
    assert fleet == {*NAMES, "balancer", "postgres"}
    assert [services[name]["hostname"] for name in NAMES] == list(NAMES)
    assert set(services["balancer"]["depends_on"]) == set(NAMES)


@pytest.mark.parametrize("kind", BALANCERS)
def test_each_balancer_knows_the_gateways_of_the_fleet(kind: str) -> None:
    """Those and no others."""
    text = BALANCERS[kind].text
    assert set(re.findall(r"(?<!at-)\bgateway-\w+", text)) == set(NAMES)


def test_every_container_of_compose_is_hardened_and_watched() -> None:
    """No writable root, no capabilities, no new privileges, a health check, a volume for what it keeps."""
    found = compose()
    for name, service in found["services"].items():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert "environment" not in service or service["volumes"], name
    kept = [volume.partition(":")[0] for service in found["services"].values() for volume in service["volumes"]]
    assert sorted(volume for volume in kept if not volume.startswith(".")) == sorted(found["volumes"])
    assert all((ROOT / volume).is_file() for volume in kept if volume.startswith("."))


def test_what_a_service_of_compose_refers_to_is_there() -> None:
    """Secrets by name, each used; the file that makes them; ports of loopback only."""
    found = compose()
    used = {secret for service in found["services"].values() for secret in service.get("secrets", ())}
    assert used == set(found["secrets"]) == {*SECRETS, "postgres_password"}
    assert {entry["file"] for entry in found["secrets"].values()} == {f"./deploy/secrets/{name}" for name in used}
    ports = [port for service in found["services"].values() for port in service.get("ports", ())]
    assert ports == ["127.0.0.1:8000:8000"] * 2


@pytest.mark.parametrize("name", GATEWAYS)
def test_the_settings_of_each_gateway_of_compose_are_accepted(name: str, secrets: Path) -> None:
    """With the secrets that the script makes, of which the single gateway needs none."""
    settings = load_settings(environment(compose()["services"][name]["environment"], secrets))
    is_fleet = name in NAMES
    assert (settings.database_url is not None, settings.secret_key is not None) == (is_fleet, is_fleet)
    assert (settings.auth_token is not None, settings.stop_delay_s) == (is_fleet, 5 if is_fleet else 0)


def test_the_settings_of_each_pod_are_accepted(secrets: Path) -> None:
    """With secrets that work; every one of them comes from a file."""
    settings = load_settings(environment(pod_environment(), secrets))
    assert None not in (settings.database_url, settings.secret_key, settings.auth_token)
    assert set(settings.allowed_hosts) >= {"mcpproxy"}


def test_no_pod_gets_variables_of_services() -> None:
    """That of a service named mcpproxy would be MCPPROXY_PORT, with an address in it."""
    pods = [each["spec"]["template"]["spec"] for _, each in manifests() if "template" in each.get("spec", {})]
    assert len(pods) >= 2
    assert [pod["enableServiceLinks"] for pod in pods] == [False] * len(pods)


def test_no_placeholder_works_as_a_secret(tmp_path: Path) -> None:
    """A gateway ends its start and names each of them."""
    given = manifest("Secret", "mcpproxy")["stringData"]
    assert set(given) == SECRETS
    for name, value in given.items():
        assert value.startswith(PLACEHOLDER)
        (tmp_path / name).write_text(value)
    with pytest.raises(ConfigError) as caught:
        load_settings(environment(pod_environment(), tmp_path))
    for name in SECRETS:
        assert f"MCPPROXY_{name.upper()}_FILE" in str(caught.value)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_file_holds_a_secret(file: Path) -> None:
    """What is named like one is a file's path, a placeholder, or made when the script runs."""
    named = re.compile(r"(?im)^[ \t-]*[\"']?[\w-]*(?:token|password|secret_key|database_url)[\"']?: *(?P<value>\S.*)$")
    for found in named.finditer(file.read_text(encoding="utf-8")):
        is_none = found["value"] == "false" or found["value"].startswith("{file: ./deploy/secrets/")
        assert is_none or PLACEHOLDER in found["value"], found[0]


def test_the_script_makes_each_secret_once(secrets: Path) -> None:
    """For its owner alone; a second run changes nothing."""
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    subprocess.run([DEPLOY / "secrets.sh", secrets], check=True, capture_output=True)
    assert {path.name: path.read_text() for path in secrets.iterdir()} == before
    assert set(before) == {*SECRETS, "postgres_password"}
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in secrets.iterdir()} == {0o444}
    assert before["postgres_password"].strip() in before["database_url"]


def test_a_secret_that_cannot_be_made_is_made_the_next_time(tmp_path: Path) -> None:
    """Not kept empty for ever."""
    programs, folder = tmp_path / "bin", tmp_path / "secrets"
    programs.mkdir()
    for name in ("bash", "cat", "chmod", "dirname", "mkdir", "mv", "rm"):
        (programs / name).symlink_to(shutil.which(name) or name)
    words = [DEPLOY / "secrets.sh", folder]
    failed = subprocess.run(words, check=False, capture_output=True, env={"PATH": str(programs)})
    assert failed.returncode != 0
    assert not list(folder.iterdir())
    subprocess.run(words, check=True, capture_output=True)
    assert all(path.stat().st_size for path in folder.iterdir())


def test_no_balancer_stops_at_a_limit_that_nobody_has_set() -> None:
    """A stream takes connections for hours, and a gateway that is gone has all its requests tried again."""
    found = yaml.safe_load(BALANCERS["envoy"].text)["static_resources"]["clusters"]
    for cluster in found:
        (limits,) = cluster["circuit_breakers"]["thresholds"]
        wanted = {f"max_{name}" for name in ("connections", "pending_requests", "requests", "retries")}
        assert {name for name, most in limits.items() if most >= MANY} == wanted
    settings = dict(re.findall(r"^ *(\w+) (\d+)k?;", BALANCERS["nginx"].text, re.MULTILINE))
    assert int(settings["worker_rlimit_nofile"]) >= int(settings["worker_connections"]) >= MANY
    assert int(re.findall(r"fd-hard-limit (\d+)", BALANCERS["haproxy"].text)[0]) >= MANY


def test_nginx_passes_on_headers_that_hold_arguments() -> None:
    """Their names are a server's own, and a token may name many groups."""
    assert "underscores_in_headers on;" in BALANCERS["nginx"].text
    assert "large_client_header_buffers 4 32k;" in BALANCERS["nginx"].text


def test_a_session_is_remembered_longer_than_its_client_is_silent() -> None:
    """With a stream open a session lives on, overnight or over a weekend; a day is the most that a service takes."""
    for file in (DEPLOY / "haproxy.cfg", KUBERNETES / "haproxy" / "haproxy.cfg"):
        assert re.findall(r" expire (\w+)", file.read_text(encoding="utf-8")) == ["7d"]
    affinity = manifest("Service", "mcpproxy")["spec"]["sessionAffinityConfig"]
    assert affinity["clientIP"]["timeoutSeconds"] == 86_400


def test_no_hidden_file_of_a_checkout_is_packed() -> None:
    """The package's folder is copied whole, and may hold a developer's `.env`; none of ours has such a name."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert build["exclude"] == [".*"]
    words = ["git", "-C", str(ROOT), "ls-files", "smart_mcp_proxy"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert [file for file in done.stdout.splitlines() if "/." in file] == []


def test_the_image_is_built_of_named_paths() -> None:
    """Also by a plain `docker build .`: nothing else of a checkout, such as its secrets, is copied."""
    copied = re.findall(r"^(?:COPY|ADD) +(?!--from=)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    pins = [f"deploy/pins/{name}.txt" for name in ("build", "gateway", "runners")]
    assert copied == [" ".join(pins[:2]), "pyproject.toml README.md LICENSE", "smart_mcp_proxy", pins[2]]


def test_pods_run_as_the_image_does() -> None:
    """Its user, its port and its volume; nothing else can be written but /tmp."""
    user, group = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)[0]
    pod = manifest("Deployment", "mcpproxy")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    context = pod["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (int(user), int(group), int(group))
    assert int(user) == 10001
    assert f"EXPOSE {container['ports'][0]['containerPort']}\n" in DOCKERFILE
    written = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    assert written == ["/data", "/tmp"]
    assert "VOLUME /data\n" in DOCKERFILE


def test_every_container_of_a_cluster_is_hardened_and_its_ports_and_volumes_exist() -> None:
    """As the namespace's policy `restricted` asks for; probes and mounts name what is there."""
    for pod, container in containers():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        context = container["securityContext"]
        assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
        assert context["capabilities"] == {"drop": ["ALL"]}
        ports = {port["name"] for port in container["ports"]}
        probes = [probe for name, probe in container.items() if name.endswith("Probe")]
        assert probes
        assert {(probe.get("httpGet") or probe["tcpSocket"])["port"] for probe in probes} <= ports
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_a_stop_has_the_time_that_it_takes() -> None:
    """The delay, the calls under way, and what waits before the signal."""
    for name in NAMES:
        service = compose()["services"][name]
        delay_s = int(service["environment"]["MCPPROXY_STOP_DELAY_S"])
        assert int(service["stop_grace_period"].removesuffix("s")) >= delay_s + DRAIN_S + 5
    pod = manifest("Deployment", "mcpproxy")["spec"]["template"]["spec"]
    before_s = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    delay_s = int(pod_environment()["MCPPROXY_STOP_DELAY_S"])
    assert pod["terminationGracePeriodSeconds"] >= before_s + delay_s + DRAIN_S + 5
    asked = re.search(r"check inter (\d)s fall (\d)", BALANCERS["haproxy"].text)
    assert asked is not None
    assert int(asked[1]) * int(asked[2]) < delay_s


def test_manifests_belong_together() -> None:
    """Each is part of a kustomization, and selectors, services and references find what they name."""
    for folder, found in kustomizations().items():
        named = {*found["resources"], *(patch["path"] for patch in found.get("patches", ()))}
        assert named - {"../gateway"} == {file.name for file in folder.glob("*.yaml")} - {"kustomization.yaml"}
        for generator in found.get("configMapGenerator", ()):
            assert all((folder / file).is_file() for file in generator["files"])
    labels = [each["spec"]["template"]["metadata"]["labels"] for _, each in manifests() if each["kind"] == "Deployment"]
    for _, each in manifests():
        if each["kind"] in {"Service", "PodDisruptionBudget"}:
            selector = each["spec"]["selector"]
            assert selector.get("matchLabels", selector) in labels
    configured = {each["metadata"]["name"] for _, each in manifests() if each["kind"] in {"ConfigMap", "Secret"}}
    generated = {each["name"] for found in kustomizations().values() for each in found.get("configMapGenerator", ())}
    for pod, _ in containers():
        for volume in pod["volumes"]:
            source = volume.get("configMap", {}).get("name") or volume.get("secret", {}).get("secretName")
            assert source in {None, *configured, *generated}


def test_haproxy_in_a_cluster_differs_only_in_how_it_finds_gateways() -> None:
    """What was tried with the one holds for the other."""
    settings = [_settings_of(path) for path in (DEPLOY / "haproxy.cfg", KUBERNETES / "haproxy" / "haproxy.cfg")]
    plain, clustered = settings
    assert [line for line in plain if line not in clustered] == [
        "use-server %[req.hdr(mcp-session-id),field(-1,.)] if { req.hdr(mcp-session-id) -m found }",
        "server gateway-a gateway-a:8000",
        "server gateway-b gateway-b:8000",
    ]
    assert [line for line in clustered if line not in plain] == ["server-template gateway- 10 mcpproxy-pods:8000"]
    assert manifest("Service", "mcpproxy-pods", "haproxy")["spec"]["clusterIP"] == "None"


def _settings_of(path: Path) -> list[str]:
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def test_nginx_takes_bodies_as_large_as_a_gateway_does() -> None:
    """The others have no limit of their own."""
    (size,) = re.findall(r"client_max_body_size (\d+)m;", BALANCERS["nginx"].text)
    assert int(size) * 1024 * 1024 == load_settings({}).max_message_bytes


def test_envoy_has_a_route_and_a_cluster_for_each_gateway() -> None:
    """A route that names a cluster which is missing is found by Envoy alone, which may not be installed."""
    resources = yaml.safe_load(BALANCERS["envoy"].text)["static_resources"]
    (filters,) = resources["listeners"][0]["filter_chains"]
    routes = filters["filters"][0]["typed_config"]["route_config"]["virtual_hosts"][0]["routes"]
    pinned = {
        header["string_match"]["suffix"]: route["route"]["cluster"]
        for route in routes
        for header in route["match"].get("headers", ())
    }
    assert pinned == {f".{name}": f"session-at-{name}" for name in NAMES}
    assert {route["route"]["cluster"] for route in routes} == {cluster["name"] for cluster in resources["clusters"]}
    assert {route["route"]["timeout"] for route in routes} == {"0s"}
