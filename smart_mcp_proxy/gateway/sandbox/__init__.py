"""Scripts that call many tools, each run in a process of its own that can do nothing but that."""

from smart_mcp_proxy.gateway.sandbox.run import Finished, Ledger, Script
from smart_mcp_proxy.gateway.sandbox.runtimes import Language, list_languages, runnable
from smart_mcp_proxy.gateway.sandbox.sandbox import Sandbox
