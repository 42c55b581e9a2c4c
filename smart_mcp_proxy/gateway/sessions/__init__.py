"""Client sessions: which tools each one sees, and what it is notified of."""
