"""The page at `/ui`, for the operator: server-rendered, and usable without JavaScript.

Everything it shows and does goes through the operations of REST, in this process, so that it can do no more than the
command line can and leaves the same records.
"""
