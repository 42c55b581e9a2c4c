"""Skills of a folder by FastMCP's own extension, over HTTP; its arguments are the folder and the port."""

import sys
from pathlib import Path

from fastmcp import FastMCP
from fastmcp.skills.provider import SkillsDirectoryProvider

server = FastMCP("skills", providers=[SkillsDirectoryProvider(Path(sys.argv[1]))])
server.run(transport="http", port=int(sys.argv[2]), show_banner=False, log_level="critical")
