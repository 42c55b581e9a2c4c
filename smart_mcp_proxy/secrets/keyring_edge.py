"""The one place that asks the operating system's keyring."""

from smart_mcp_proxy.errors import ConfigError

KEYRING_SERVICE = "mcpproxy"


def read_keyring_secret(name: str) -> str | None:
    """Read the secret `name` of the service `mcpproxy`, None without one. May block.

    Raises:
        ConfigError: There is no keyring here, or it does not answer.
    """
    # Imported on use: it searches the installation for backends, 0.1 s that a configuration without it need not pay.
    import keyring
    from keyring.errors import KeyringError

    try:
        return keyring.get_password(KEYRING_SERVICE, name)
    except KeyringError as exc:
        raise ConfigError(
            f"The keyring cannot be asked: {type(exc).__name__}.",
            hint="Unlock it, or use ${env:NAME} or ${file:path} instead.",
        ) from exc


def store_secret(name: str, value: str) -> None:
    """Keeps `value` under `name` for the service `mcpproxy`. May block on the desktop.

    Raises:
        ConfigError: There is no keyring here, or it does not take it.
    """
    import keyring  # see read_keyring_secret
    from keyring.errors import KeyringError

    try:
        keyring.set_password(KEYRING_SERVICE, name, value)
    except KeyringError as exc:
        raise ConfigError(f"The keyring cannot be used: {type(exc).__name__}.", hint="Unlock it.") from exc
