"""Evaluation of search: labelled queries in, figures out."""

from smart_mcp_proxy.evaluation.files import LabelledQuery, LabelledTool, read_queries, read_tools
from smart_mcp_proxy.evaluation.pool import ToolCorpus, pool_of_tools
from smart_mcp_proxy.evaluation.replay import Replay, compare_runs, extract_queries, label_queries
from smart_mcp_proxy.evaluation.run import EvaluationRun, NothingFits, Outcome, run_queries, run_unanswerable
from smart_mcp_proxy.evaluation.summary import MEASURES, Difference, MacroMeans, Summary, compare, summarize
from smart_mcp_proxy.evaluation.systems import OnStep, System, prepare_vectors
