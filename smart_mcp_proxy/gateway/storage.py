"""Storage of a gateway."""

from contextlib import AbstractAsyncContextManager

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.settings import Settings

__all__ = ["opened_catalog"]


def opened_catalog(settings: Settings) -> AbstractAsyncContextManager[Catalog]:
    """Open the catalog of the data directory.

    It is in memory if the default one cannot be used, in a read-only home, say.

    Raises:
        ConfigError: The directory that the user has chosen cannot be used, or a newer program has written the file.
        CatalogError: The file stays locked.
    """
    return Catalog.open(
        settings.data_dir,
        name_limit=settings.tool_name_limit,
        reset=settings.reset_data,
        is_needed="data_dir" in settings.model_fields_set,
    )
