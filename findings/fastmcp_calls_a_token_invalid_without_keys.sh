#!/usr/bin/env bash
# fastmcp 4.2.3: while the issuer's keys cannot be fetched a good token is refused as invalid, also for a while afterwards.
#
# A server behind JWTVerifier whose `jwks_uri` answers 503 answers a token that it cannot check with 401 and
# `invalid_token`, as it would a forged one, and not with an error of its own; once the keys are there again it asks for
# them no sooner than `jwks_refresh_interval` seconds (30) after it last did. To a client 401 says that the token is worth
# nothing: it signs in anew at the issuer that is down.
# Source: https://www.rfc-editor.org/rfc/rfc6750#section-3.1
#
# Seen: `keys down: 401 invalid_token`, `keys back: 401 invalid_token`, `new server: 200`.
# Needs python3 with venv and pip. Talks to nobody, but for the installation.
set -euo pipefail
version=4.2.3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "fastmcp==$version" >&2 || exit 2

cat >"$work/try.py" <<'PYTHON'
import asyncio

import httpx2
from fastmcp import FastMCP
from fastmcp.server.auth.providers.jwt import JWTVerifier, RSAKeyPair
from joserfc import jwk

ISSUER = "https://id.example"
key, is_down = RSAKeyPair.generate(), True
public = jwk.import_key(key.public_key, "RSA").as_dict() | {"kid": "one", "use": "sig"}


class Keys(httpx2.AsyncBaseTransport):
    async def handle_async_request(self, request):
        return httpx2.Response(503, request=request) if is_down else httpx2.Response(200, json={"keys": [public]}, request=request)


def serve():
    verifier = JWTVerifier(jwks_uri=f"{ISSUER}/keys", issuer=ISSUER, http_client=httpx2.AsyncClient(transport=Keys()))
    return FastMCP("server", auth=verifier).http_app(stateless_http=True, json_response=True)


async def ask(app):
    token = key.create_token(subject="ann", issuer=ISSUER, kid="one")
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "client", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info}
    headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1:8000") as client:
        reply = await client.post("/mcp", json=body, headers=headers)
    said = reply.headers.get("www-authenticate", "")
    return f"{reply.status_code} {'invalid_token' if 'invalid_token' in said else ''}".strip()


async def main():
    global is_down
    app, fresh = serve(), serve()
    async with app.router.lifespan_context(app), fresh.router.lifespan_context(fresh):
        print("keys down:", await ask(app))
        is_down = False
        print("keys back:", await ask(app))
        print("new server:", await ask(fresh))


asyncio.run(main())
PYTHON

seen=$("$work/venv/bin/python" "$work/try.py" 2>"$work/stderr") || { cat "$work/stderr" >&2; exit 2; }
echo "fastmcp $version"
echo "$seen"
[[ $seen == $'keys down: 401 invalid_token\nkeys back: 401 invalid_token\nnew server: 200' ]] || { echo "This has changed." >&2; exit 1; }
