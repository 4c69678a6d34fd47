"""Mirrors src/unsay. A package: others install one of the same name, which Python would take before a directory."""
