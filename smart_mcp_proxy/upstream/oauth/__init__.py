"""Sign-in to servers."""
