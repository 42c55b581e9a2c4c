"""The shipped compose file and Kubernetes manifests as data."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from balancers import DEPLOY

__all__ = ["COMPOSE", "KUBERNETES", "ROOT", "compose", "containers", "kustomizations", "manifest", "manifests"]

ROOT = DEPLOY.parent
COMPOSE = ROOT / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes"
_DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")


def compose() -> dict[str, Any]:
    """The compose file as it is where no variable is set."""
    found: dict[str, Any] = _settled(yaml.safe_load(COMPOSE.read_text(encoding="utf-8")))
    return found


def _settled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _settled(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_settled(each) for each in value]
    return _DEFAULT.sub(lambda match: match[1], value) if isinstance(value, str) else value


def kustomizations() -> dict[Path, dict[str, Any]]:
    """Each kustomization, by its folder."""
    files = sorted(KUBERNETES.glob("*/kustomization.yaml"))
    return {file.parent: yaml.safe_load(file.read_text(encoding="utf-8")) for file in files}


def manifests() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each object that a cluster gets, and its file."""
    for file in sorted(KUBERNETES.glob("*/*.yaml")):
        if file.name != "kustomization.yaml":
            for each in yaml.safe_load_all(file.read_text(encoding="utf-8")):
                yield file, each


def manifest(kind: str, name: str, folder: str = "gateway") -> dict[str, Any]:
    """The one object of that kind and name."""
    wanted = (KUBERNETES / folder, kind, name)
    (found,) = [each for file, each in manifests() if (file.parent, each["kind"], each["metadata"]["name"]) == wanted]
    return found


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each container of the manifests, behind the pod it belongs to."""
    for _, each in manifests():
        if each["kind"] == "Deployment":
            pod = each["spec"]["template"]["spec"]
            for container in pod["containers"]:
                yield pod, container
