"""Mirrors src/unsay. A package, since others install one of the same name, which Python would take before a directory."""
