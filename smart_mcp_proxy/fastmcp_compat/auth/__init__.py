"""Sign-in with the libraries."""
