"""Workers that keep catalog and index equal to what servers list."""
