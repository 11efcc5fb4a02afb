"""Exported bundles and other libraries side by side in one Chromium."""
