"""How good the answers are: labelled queries in, figures out."""

from smart_mcp_proxy.gateway.evaluation.files import LabelledQuery, LabelledTool, read_queries, read_tools
from smart_mcp_proxy.gateway.evaluation.pool import Pool, pool_of_tools
from smart_mcp_proxy.gateway.evaluation.run import NothingFits, Outcome, Run, run_queries, run_unanswerable
from smart_mcp_proxy.gateway.evaluation.summary import MEASURES, Difference, Figures, Summary, compare, summarize
from smart_mcp_proxy.gateway.evaluation.systems import OnStep, System, prepare_vectors

__all__ = [
    "MEASURES",
    "Difference",
    "Figures",
    "LabelledQuery",
    "LabelledTool",
    "NothingFits",
    "OnStep",
    "Outcome",
    "Pool",
    "Run",
    "Summary",
    "System",
    "compare",
    "pool_of_tools",
    "prepare_vectors",
    "read_queries",
    "read_tools",
    "run_queries",
    "run_unanswerable",
    "summarize",
]
