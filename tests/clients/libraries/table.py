"""The client libraries that the tests drive: what is installed, in fixed versions, and the program that uses it."""

import re
from typing import NamedTuple


class Library(NamedTuple):
    """One library: its packages, the first naming its environment, and the program beside this file."""

    name: str
    packages: tuple[str, ...]
    program: str
    is_in_ci: bool = False

    @property
    def version(self) -> str:
        return re.split(r"==|(?<=.)@", self.packages[0])[-1]

    def __repr__(self) -> str:
        return self.name


LIBRARIES = (
    Library("crewai", ("crewai-tools[mcp]==1.15.30",), "crewai_adapter.py", is_in_ci=True),
    Library("mcp-use", ("mcp-use==1.7.1",), "mcp_use_library.py"),
    Library("langchain", ("langchain-mcp-adapters==0.3.2",), "langchain_adapters.py"),
    Library("llama-index", ("llama-index-tools-mcp==0.6.0",), "llama_index_tools.py"),
    Library("google-adk", ("google-adk==2.13.0", "mcp==1.30.0"), "google_adk.py"),
    Library("google-genai", ("google-genai==3.6.1", "mcp==2.3.0"), "google_genai_session.py", is_in_ci=True),
    Library("smolagents", ("smolagents[mcp]==1.26.0", "mcp==1.30.0", "websockets"), "smolagents_tools.py"),
    Library("autogen", ("autogen-ext[mcp]==0.7.5", "mcp==1.30.0"), "autogen_tools.py"),
    Library("agno", ("agno==3.1.10", "fastmcp>=4,<5"), "agno_tools.py"),
    Library("strands", ("strands-agents==1.62.0",), "strands_tools.py"),
    Library("semantic-kernel", ("semantic-kernel[mcp]==1.45.0",), "semantic_kernel_plugin.py"),
    Library("haystack", ("mcp-haystack==2.1.1",), "haystack_tools.py"),
    Library("ai-sdk", ("@ai-sdk/mcp@2.0.99", "zod@4.6.7"), "ai_sdk.mjs", is_in_ci=True),
    Library("mastra", ("@mastra/mcp@2.0.0", "@mastra/core@1.71.0", "zod@4.6.7"), "mastra.mjs"),
    Library(
        "langchain-js",
        ("@langchain/mcp-adapters@1.1.4", "@langchain/core@1.4.0", "@langchain/langgraph@1.7.3"),
        "langchain_adapters.mjs",
    ),
)
"""`.ci/run` drives those that were refused once for what they send; `make soak` drives all of them."""
