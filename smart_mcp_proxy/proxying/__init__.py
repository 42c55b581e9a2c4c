"""Vocabulary of the `proxy` tool for both ends: requests, answers and their metadata.

Source: docs/design/proxy-extension.md#the-proxy-extension
"""
