"""Sign-ins on disk: unreadable for others, useless elsewhere, and never a reason to crash."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.errors import ConfigError, UpstreamAuthError
from smart_mcp_proxy.secrets.auth_key import SignInKey
from smart_mcp_proxy.upstream.addresses import AddressReach, classify_address
from smart_mcp_proxy.upstream.oauth.auth_store import SignIn, SignInFiles

URL = "https://web.example/mcp"
KEPT = SignIn(
    "https://a.example", {"issuer": "x"}, None, {"client_id": "c"}, "canary-access", "canary-refresh", "", 1, 2
)


class FakeKeyring:
    """A keyring: what it holds, and whether it can be asked."""

    def __init__(self, *, is_there: bool = True, keeps: bool = True) -> None:
        self.held: dict[str, str] = {}
        self.is_there = is_there
        self.keeps = keeps

    def get(self, name: str) -> str | None:
        if not self.is_there:
            raise ConfigError("The keyring cannot be asked: NoKeyringError.")
        return self.held.get(name)

    def put(self, name: str, value: str) -> None:
        if not self.is_there:
            raise ConfigError("The keyring cannot be used: NoKeyringError.")
        if self.keeps:
            self.held[name] = value


def store_in(folder: Path, keyring: FakeKeyring) -> SignInFiles:
    return SignInFiles(folder, SignInKey(folder, keyring.get, keyring.put))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sign-ins"


def files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]


@pytest.mark.parametrize(
    "keyring",
    [FakeKeyring(), FakeKeyring(is_there=False), FakeKeyring(keeps=False)],
    ids=["keyring", "none", "forgetful"],
)
def test_a_sign_in_is_kept_encrypted_and_for_the_owner_alone(folder: Path, keyring: FakeKeyring) -> None:
    """With and without a keyring: it comes back whole, no file shows a token, no file is open to others."""
    keyring.held.clear()
    store_in(folder, keyring)._write("web", URL, KEPT)
    assert store_in(folder, keyring)._read("web", URL)[0] == KEPT
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in files(folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert b"canary" not in path.read_bytes()
    assert (folder / "key").exists() != bool(keyring.held)


def test_a_key_file_is_kept_to_when_a_keyring_appears(folder: Path) -> None:
    """What was stored without a desktop stays readable without one."""
    store_in(folder, FakeKeyring(is_there=False))._write("web", URL, KEPT)
    keyring = FakeKeyring()
    store_in(folder, keyring)._write("other", URL, KEPT)
    assert keyring.held == {}
    assert store_in(folder, FakeKeyring(is_there=False))._read("other", URL)[0] == KEPT


def test_there_is_nothing_to_read_before_somebody_signed_in(folder: Path) -> None:
    """None, without a folder being made; the other server and the other address have none either."""
    store = store_in(folder, FakeKeyring())
    assert store._read("web", URL) == (None, None)
    assert (store._stamp("web", URL), store._remove("web", URL)) == (None, False)
    assert not folder.exists()
    store._write("web", URL, KEPT)
    assert store._read("web", URL + "2")[0] is None
    assert store._read("web2", URL)[0] is None


def record(folder: Path) -> Path:
    (path,) = folder.glob("*.json")
    return path


def break_mode(folder: Path) -> None:
    record(folder).chmod(0o644)


def break_text(folder: Path) -> None:
    record(folder).write_bytes(b"{")


def break_box(folder: Path) -> None:
    text = record(folder).read_bytes()
    record(folder).write_bytes(text[:-20] + bytes([text[-20] ^ 1]) + text[-19:])


def break_link(folder: Path) -> None:
    target = folder / "target"
    record(folder).rename(target)
    (folder / NAME).symlink_to(target)


def break_key(folder: Path) -> None:
    (folder / "key").unlink()


def break_key_mode(folder: Path) -> None:
    (folder / "key").chmod(0o640)


def break_key_text(folder: Path) -> None:
    (folder / "key").write_text("c2hvcnQ=")


NAME = SignInFiles(Path())._path("web", URL).name
BREAKS = {
    break_mode: "open to other users (mode 644",
    break_text: "is damaged",
    break_box: "is damaged",
    break_link: "cannot be read",
    break_key: "is gone",
    break_key_mode: "open to other users (mode 640",
    break_key_text: "key is damaged",
}


@pytest.mark.parametrize("damage", BREAKS, ids=lambda damage: damage.__name__)
def test_a_file_that_is_not_as_we_left_it_asks_for_a_new_sign_in(folder: Path, damage: object) -> None:
    """Whatever happened to it, the message says what, and a new sign-in repairs it where it can be repaired."""
    store = store_in(folder, FakeKeyring(is_there=False))
    store._write("web", URL, KEPT)
    assert callable(damage)
    damage(folder)
    with pytest.raises(UpstreamAuthError) as caught:
        store._read("web", URL)
    assert BREAKS[damage] in caught.value.message  # type: ignore[index]
    assert caught.value.hint == "Sign in with: mcpproxy server login web"
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("damage", [break_mode, break_text, break_link, break_key], ids=lambda damage: damage.__name__)
def test_a_new_sign_in_replaces_a_broken_file(folder: Path, damage: object) -> None:
    """The next one is written over it."""
    store = store_in(folder, FakeKeyring(is_there=False))
    store._write("web", URL, KEPT)
    assert callable(damage)
    damage(folder)
    store._write("web", URL, KEPT)
    assert store._read("web", URL)[0] == KEPT


def test_a_file_of_another_server_cannot_be_used(folder: Path) -> None:
    """A sign-in that is moved to another server's place is not sent there."""
    store = store_in(folder, FakeKeyring())
    store._write("web", URL, KEPT)
    moved = record(folder)
    moved.rename(store._path("evil", "https://evil.example/mcp"))
    with pytest.raises(UpstreamAuthError, match="written for another server"):
        store._read("evil", "https://evil.example/mcp")


def test_a_lost_keyring_asks_for_a_new_sign_in(folder: Path) -> None:
    """Locked, or without our entry: the message says so."""
    keyring = FakeKeyring()
    store = store_in(folder, keyring)
    store._write("web", URL, KEPT)
    keyring.is_there = False
    with pytest.raises(UpstreamAuthError, match="its key is in the system's keyring"):
        store._read("web", URL)
    keyring.is_there = True
    keyring.held.clear()
    with pytest.raises(UpstreamAuthError, match="no longer in the system's keyring"):
        store._read("web", URL)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The error names the place."""
    (tmp_path / "file").write_text("")
    store = store_in(tmp_path / "file" / "sign-ins", FakeKeyring())
    with pytest.raises(ConfigError, match="cannot be stored under"):
        store._write("web", URL, KEPT)


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:{}", "64:ff9b::{}"]))
def test_an_address_inside_an_address_counts(inner: object, form: str) -> None:
    """An IPv4 address is judged the same however it is wrapped."""
    assert classify_address(form.format(inner)) == classify_address(str(inner))


@pytest.mark.parametrize(
    ("address", "reach"),
    [
        ("93.184.216.34", AddressReach.PUBLIC),
        ("2606:2800:220:1::1", AddressReach.PUBLIC),
        ("10.1.2.3", AddressReach.PRIVATE),
        ("100.64.0.1", AddressReach.PRIVATE),
        ("fd12::1", AddressReach.PRIVATE),
        ("127.1.2.3", AddressReach.LOOPBACK),
        ("::1", AddressReach.LOOPBACK),
        ("::", AddressReach.FORBIDDEN),
        ("0.0.0.0", AddressReach.FORBIDDEN),
        ("169.254.169.254", AddressReach.FORBIDDEN),
        ("fe80::1%eth0", AddressReach.FORBIDDEN),
        ("fd00:ec2::254", AddressReach.FORBIDDEN),
        ("100.100.100.200", AddressReach.FORBIDDEN),
        ("224.0.0.1", AddressReach.FORBIDDEN),
        ("255.255.255.255", AddressReach.FORBIDDEN),
        ("2002:a9fe:a9fe::1", AddressReach.FORBIDDEN),
    ],
)
def test_how_close_an_address_is(address: str, reach: AddressReach) -> None:
    """Public, inside a network, this machine, or nobody's business."""
    assert classify_address(address) is reach
