"""Requests on their way to a server: names, arguments, admission, results."""
