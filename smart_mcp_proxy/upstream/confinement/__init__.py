"""Confinement of servers' processes by the system."""
