"""Opens the catalog that the settings name."""

from contextlib import AbstractAsyncContextManager

from smart_mcp_proxy.catalog.catalog import Catalog
from smart_mcp_proxy.settings import Settings


def open_catalog(
    settings: Settings, *, reset: bool = False, is_needed: bool = True
) -> AbstractAsyncContextManager[Catalog]:
    """Open the catalog in the settings' database, or in their data directory; see `Catalog.open`."""
    url = settings.database_url
    return Catalog.open(
        settings.data_dir,
        name_limit=settings.tool_name_limit,
        url=None if url is None else url.get_secret_value(),
        reset=reset,
        is_needed=is_needed,
    )
