"""Roles over REST and at the page: an approver of the identity provider approves, a viewer does not."""
