"""Evaluation of search: labelled queries in, figures out."""

from smart_mcp_proxy.evaluation.files import LabelledQuery, LabelledTool, read_queries, read_tools
from smart_mcp_proxy.evaluation.pool import Pool, pool_of_tools
from smart_mcp_proxy.evaluation.replay import Replay, labelled, logged_queries, replayed
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
    "Replay",
    "Run",
    "Summary",
    "System",
    "compare",
    "labelled",
    "logged_queries",
    "pool_of_tools",
    "prepare_vectors",
    "read_queries",
    "read_tools",
    "replayed",
    "run_queries",
    "run_unanswerable",
    "summarize",
]
