"""Files of the known clients as they are before and after; `python client_samples.py` writes the latter anew."""

import json
from pathlib import Path
from typing import Any

from smart_mcp_proxy.client_files import KNOWN_CLIENTS, OUR_NAME, Door, KnownClient, Places, find_servers, our_entry
from smart_mcp_proxy.client_files.texts import edit

GOLDEN = Path(__file__).parent / "golden"
SECRET = "s3cret-value"
STDIO = Door(("/opt/bin/mcpproxy",), {"MCPPROXY_CONFIG_PATH": "/home/u/mcp_config.json"}, ("MY_API_KEY",))
HTTP = Door(("/opt/bin/mcpproxy",), url="http://127.0.0.1:8000/mcp")


def before(client: KnownClient) -> Path:
    """The client's file as it is."""
    (found,) = (GOLDEN / client.name).glob("before.*")
    return found


def connected(client: KnownClient, door: Door) -> str:
    """The client's file with our entry."""
    text = before(client).read_text("utf-8")
    return edit(text, client.text_format, client.section, {OUR_NAME: our_entry(client, door)}, "the file")


def taken_over(client: KnownClient, home: Path) -> dict[str, Any]:
    """The servers that are found in the client's file, with what each needs and loses."""
    place = Places({"HOME": str(home), "PATH": ""}, home / "project", "linux").user_file(client)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(before(client).read_bytes())
    finding = find_servers(Places({"HOME": str(home), "PATH": ""}, home / "project", "linux"), {})
    assert finding.problems == []
    return {
        server.name: {
            "entry": server.translated.entry,
            "from": server.places,
            "needs": list(server.needs),
            "lost": list(server.translated.lost),
            "standing": server.standing,
        }
        for server in finding.servers
    }


def main() -> None:
    import tempfile

    for client in KNOWN_CLIENTS:
        folder, suffix = GOLDEN / client.name, before(client).suffix
        (folder / f"stdio{suffix}").write_text(connected(client, STDIO), "utf-8")
        (folder / f"http{suffix}").write_text(connected(client, HTTP), "utf-8")
        with tempfile.TemporaryDirectory() as home:
            found = taken_over(client, Path(home))
        (folder / "servers.json").write_text(json.dumps(found, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
