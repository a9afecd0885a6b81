"""The adapter of LangChain and LangGraph: `decode` reads, `core` and `graph` put the seams in."""
