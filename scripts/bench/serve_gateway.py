"""Our gateway as the benchmark runs it: the same transports as `mcpproxy serve`, without its chatter.

Usage: python -m bench.serve_gateway stdio|http|prepare CONFIG DATA_DIR [--port N] [--profile FILE] [--no-poll]
           [--embedder NAME] [--metrics] [--traces SHARE --collector URL]

`prepare` lists every server once, so that the catalog is stored, and ends.
"""

import argparse
import os
from pathlib import Path

from bench.sampler import Sampler
from smart_mcp_proxy.cli.support.loop import run
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.io import busy_poll
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import configure_logging
from smart_mcp_proxy.web.listening import bind
from smart_mcp_proxy.web.serve import stop_signals, tune_process
from smart_mcp_proxy.web.serve_http import serve_http
from smart_mcp_proxy.web.stdio.stdio import serve_stdio

SETTLE_S = 60.0


async def serve(options: argparse.Namespace) -> int:
    settings = Settings(data_dir=options.data_dir, embedder=options.embedder, metrics=options.metrics)
    servers = load_servers(options.config.read_text()).servers
    with stop_signals() as stop:
        async with open_gateway(settings, servers, environ=os.environ) as gateway, tune_process():
            if options.mode == "stdio":
                await serve_stdio(gateway, stop)
            elif options.mode == "http":
                async with serve_http(gateway, bind("127.0.0.1", options.port), token=None):
                    await stop.wait()
            else:
                gateway.start_upstreams()
                if not await gateway.wait_settled(SETTLE_S):
                    raise SystemExit(f"not all servers were listed within {SETTLE_S:g} s")
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("stdio", "http", "prepare"))
    parser.add_argument("config", type=Path)
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--embedder", default="BM25")
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--no-poll", action="store_true", help="sleep at once after something was sent")
    parser.add_argument("--metrics", action="store_true", help="count activity for /metrics")
    parser.add_argument("--traces", type=float, help="share of calls whose traces are recorded")
    parser.add_argument("--collector", default="", help="where they are sent")
    options = parser.parse_args()
    configure_logging("WARNING")
    if options.traces is not None:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = options.collector
        os.environ["OTEL_TRACES_SAMPLER"] = "parentbased_traceidratio"
        os.environ["OTEL_TRACES_SAMPLER_ARG"] = str(options.traces)
    if options.no_poll:
        setattr(busy_poll, "POLL_S", 0.0)  # noqa: B010  (a constant)
    if options.profile:
        Sampler(options.profile)
    run(serve(options))


if __name__ == "__main__":
    main()
