"""Characters that show nothing: one list, where writing needs them, and a quick look for them."""
