"""The chart, by Helm's own library: it makes what the manifests hold, and refuses values that mean nothing."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from balancers import DEPLOY
from manifests import manifest

from smart_mcp_proxy import __version__
from smart_mcp_proxy.settings import load_settings

CHART = DEPLOY / "helm" / "mcpproxy"
NAMED = ("labels", "selector", "matchLabels", "annotations", "namespace", "labelSelector")
"""What a release fills in with its own name."""

helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed: pip install helm-python-sdk")


def render(values: dict[str, Any], release: str = "mcpproxy") -> dict[str, dict[str, Any]]:
    """Each object that the chart makes, by kind and name."""
    with helm.Chart.load(str(CHART)) as chart:
        texts = chart.render(values, name=release, namespace="tools")
    found = [each for path, text in texts.items() if path.endswith(".yaml") for each in yaml.safe_load_all(text)]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found if each}


def strip_names(value: Any) -> Any:
    """Everything but what a release names."""
    if isinstance(value, dict):
        return {key: strip_names(each) for key, each in value.items() if key not in NAMED}
    return [strip_names(each) for each in value] if isinstance(value, list) else value


def test_the_chart_is_clean() -> None:
    """By the strict rules of `helm lint`, a missing icon apart."""
    report = helm.lint(str(CHART), strict=True)
    assert report["errors"] == []
    assert [one for one in report["messages"] if "icon is recommended" not in one["error"]] == []


def test_a_broken_chart_is_found(tmp_path: Path) -> None:
    """The check above can fail."""
    broken = tmp_path / "mcpproxy"
    shutil.copytree(CHART, broken)
    file = broken / "templates" / "service.yaml"
    file.write_text(file.read_text("utf-8").replace("{{- include", "{{- inklude", 1), "utf-8")
    assert helm.lint(str(broken), strict=True)["errors"]


@pytest.mark.parametrize("kind", ["Deployment", "Service", "PodDisruptionBudget"])
def test_the_chart_makes_what_the_manifests_hold(kind: str) -> None:
    """With its default values: probes, rights, times and volumes are the same in both."""
    made, shipped = (strip_names(each) for each in (render({})[f"{kind}/mcpproxy"], manifest(kind, "mcpproxy")))
    if kind == "Deployment":
        (container,) = shipped["spec"]["template"]["spec"]["containers"]
        container |= {"image": "mcpproxy:full", "imagePullPolicy": "IfNotPresent"}
    assert made == shipped


def test_what_the_chart_makes_keeps_to_the_schemas() -> None:
    """With every part of it turned on; the operator's own kinds are not in them."""
    schemas = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    everything = {
        "ingress": {"enabled": True, "host": "tools.example", "className": "nginx", "tlsSecret": "tools"},
        "metrics": {"enabled": True},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "tools", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    }
    checked = [schemas.validate(each, "1.37", strict=True) for each in render(everything).values()]
    assert len(checked) == 6


def test_settings_and_servers_reach_the_gateway(tmp_path: Path) -> None:
    """Hosts of the release and of the ingress; the server file whole; a metrics port."""
    servers = {"docs": {"url": "https://docs.example/mcp", "headers": {"X-Team": "${TEAM}"}}}
    values = {
        "servers": servers,
        "settings": {"MCPPROXY_READ_ONLY": True},
        "ingress": {"enabled": True, "host": "tools.example"},
        "metrics": {"enabled": True, "podMonitor": True, "alerts": True},
    }
    made = render(values, release="ours")
    data = made["ConfigMap/ours"]["data"]
    settings = load_settings({**data, "MCPPROXY_DATA_DIR": str(tmp_path)})
    assert settings.allowed_hosts == ("ours", "ours.tools", "ours.tools.svc", "tools.example")
    assert (settings.metrics_port, settings.read_only) == (9464, True)
    assert yaml.safe_load(made["ConfigMap/ours-servers"]["data"]["mcp_config.json"]) == {"mcpServers": servers}
    assert made["PrometheusRule/ours"]["spec"] == yaml.safe_load((CHART / "alerts.yaml").read_text("utf-8"))
    assert set(made) == {
        *("ConfigMap/ours", "ConfigMap/ours-servers", "Deployment/ours", "Ingress/ours", "PodDisruptionBudget/ours"),
        *("PodMonitor/ours", "PrometheusRule/ours", "Service/ours"),
    }


def test_a_changed_setting_replaces_the_gateways_and_a_changed_server_does_not() -> None:
    """The gateway follows its server file by itself."""
    template = [
        render(values)["Deployment/mcpproxy"]["spec"]["template"]
        for values in ({}, {"servers": {"more": {"command": "uvx", "args": ["x"]}}}, {"allowedHosts": ["a.example"]})
    ]
    assert template[0] == template[1] != template[2]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicas": 0}, "replicas"),
        ({"replica": 2}, "replica"),
        ({"settings": {"MCPPROXY_SECRET_KEY": "x"}}, "MCPPROXY_SECRET_KEY"),
        ({"settings": {"LOG_LEVEL": "INFO"}}, "LOG_LEVEL"),
        ({"servers": {"time": "uvx mcp-server-time"}}, "time"),
        ({"ingress": {"enabled": True}}, "ingress.host"),
    ],
)
def test_values_that_mean_nothing_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    """A misspelt one would be ignored in silence; a secret would stay in the release's record."""
    with pytest.raises(helm.HelmError, match=named):
        render(values)


def test_the_chart_has_the_programs_version() -> None:
    """Both are released together."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["version"] == chart["appVersion"] == __version__
