"""Each prints hardware, command and result. A package, since others install one of the same name."""
