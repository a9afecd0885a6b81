"""The checks: pure logic that reads events and returns findings."""
