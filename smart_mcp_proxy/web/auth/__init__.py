"""Authentication of clients: tokens and sign-in."""
