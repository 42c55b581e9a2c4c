"""Settings that belong together: of some only one may be set, others hold a secret or name its file."""

SECRET_FILES = {
    "auth_token": "auth_token_file",
    "database_url": "database_url_file",
    "oidc_client_secret": "oidc_client_secret_file",
    "operator_token": "operator_token_file",
    "secret_key": "secret_key_file",
}
"""Secrets, and the settings that name a file which holds them instead."""

EXCLUSIVE = (
    *SECRET_FILES.items(),
    ("config_path", "config_json"),
    ("jwt_public_key", "jwt_public_key_file"),
    ("jwt_jwks_url", "jwt_public_key"),
    ("jwt_jwks_url", "jwt_public_key_file"),
    ("oidc_url", "jwt_jwks_url"),
    ("oidc_url", "jwt_public_key"),
    ("oidc_url", "jwt_public_key_file"),
)
"""Settings that answer the same question: of two in the environment neither is obviously meant; a flag wins."""
