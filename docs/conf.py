"""Configuration of the documentation site: `make docs` builds it into .cache/docs, without a network."""

project = "smart-mcp-proxy"
author = "the smart-mcp-proxy contributors"
html_title = "smart-mcp-proxy"
html_theme = "furo"

extensions = ["myst_parser"]
# Headings are link targets, as on a repository's own pages: a link to one that is not there fails the build.
myst_heading_anchors = 4
myst_links_external_new_tab = False
nitpicky = True
exclude_patterns = ["words"]

html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
# Nothing is fetched from elsewhere: neither fonts nor scripts.
html_theme_options = {"navigation_with_keys": False}
