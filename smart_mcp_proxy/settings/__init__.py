"""Settings: every `MCPPROXY_*` variable, read once, checked, frozen, and explained."""

from smart_mcp_proxy.settings.addresses import BEARER, is_database
from smart_mcp_proxy.settings.explain import Origin, Setting, all_settings, origins, unknown_variables
from smart_mcp_proxy.settings.fields import PREFIX, Settings
from smart_mcp_proxy.settings.load import environment, load_settings
