"""OpenTelemetry for LLM agents that repeat themselves."""
