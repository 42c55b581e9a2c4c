"""Generated parts of the documentation, each from the code that it describes."""
