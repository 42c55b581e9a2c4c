"""HTTP served by several processes on one port."""
