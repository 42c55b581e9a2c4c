"""Commands about tools: search, call, approve, evaluate."""
