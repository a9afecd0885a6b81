"""Adapters: the guard in the tool path, the model path and the entries of agent frameworks.

`table.ADAPTERS` names them; a module of an adapter is imported when the framework that it is for has been.
The parts that adapters share are `contract` (what an adapter decodes), `tools`, `models` and `entries` (the
three seams), `patching` (put in, and put back exactly) and `attaching` (versions, imports, settings).
"""
