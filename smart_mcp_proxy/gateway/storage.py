"""Storage of a gateway."""

from contextlib import AbstractAsyncContextManager

from smart_mcp_proxy.catalog import Catalog, open_catalog
from smart_mcp_proxy.settings import Settings


def open_gateway_catalog(settings: Settings) -> AbstractAsyncContextManager[Catalog]:
    """Open the catalog of the data directory, or of the database.

    It is in memory if the default one cannot be used, in a read-only home, say.

    Raises:
        ConfigError: The directory that the user has chosen, or the database, cannot be used, or a newer program has
            written it.
        CatalogError: The file stays locked.
    """
    return open_catalog(settings, reset=settings.reset_data, is_needed="data_dir" in settings.model_fields_set)
