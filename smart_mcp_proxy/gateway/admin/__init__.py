"""The operator's side: servers, approvals, tokens and the gateway's status."""
