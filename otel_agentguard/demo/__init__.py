"""Small agents that go wrong as agents do, with a scripted model and real tools: no key, no network."""
