"""The wrappers that a program puts around its tools, agents and model calls."""
