"""Evaluation of search: labelled queries in, figures out."""

from smart_mcp_proxy.evaluation.files import LabelledQuery, LabelledTool, read_queries, read_tools
from smart_mcp_proxy.evaluation.pool import Pool, pool_of_tools
from smart_mcp_proxy.evaluation.run import NothingFits, Outcome, Run, run_queries, run_unanswerable
from smart_mcp_proxy.evaluation.summary import MEASURES, Difference, Figures, Summary, compare, summarize
from smart_mcp_proxy.evaluation.systems import OnStep, System, prepare_vectors

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
