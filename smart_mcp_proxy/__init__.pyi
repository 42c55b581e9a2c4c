from smart_mcp_proxy.client import ProxyClient as ProxyClient
from smart_mcp_proxy.client import ProxyFastMCP as ProxyFastMCP
from smart_mcp_proxy.client import ProxyMCP as ProxyMCP
from smart_mcp_proxy.client import ProxyResponseInfo as ProxyResponseInfo
from smart_mcp_proxy.errors import ConfigError as ConfigError
from smart_mcp_proxy.errors import ProxyError as ProxyError
from smart_mcp_proxy.gateway import Gateway as Gateway
from smart_mcp_proxy.gateway import open_gateway as open_gateway
from smart_mcp_proxy.servers import load_servers as load_servers
from smart_mcp_proxy.settings import Settings as Settings

__version__: str
