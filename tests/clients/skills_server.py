"""Skills of a folder by FastMCP's own extension, over HTTP; its arguments are the folder and the port."""

import sys
from pathlib import Path

from fastmcp import FastMCP
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.skills.extension import SkillsExtension

provider = SkillsDirectoryProvider(roots=Path(sys.argv[1]), supporting_files="resources", experimental_skills=True)
server = FastMCP("skills")
server.add_provider(provider)
server.add_extension(SkillsExtension(providers=[provider]))
server.run(transport="http", port=int(sys.argv[2]), show_banner=False, log_level="critical")
