"""Recorded runs: from files to events, and through the engine."""
