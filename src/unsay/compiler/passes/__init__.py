"""Rewrites of LLMIR, one a file, named as the file; pipeline.py has their order."""

from unsay.compiler.passes.pipeline import run_passes

__all__ = ["run_passes"]
