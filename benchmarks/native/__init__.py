"""Rows that run without a browser."""
