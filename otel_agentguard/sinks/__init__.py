"""Where the guard's events go: logs, Prometheus metrics, and OTLP from the same registry.

Each module imports its own library, so nothing here is imported before it is chosen.
"""
