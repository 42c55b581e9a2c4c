"""Answers to searches: ranked tools, signatures, hints."""
