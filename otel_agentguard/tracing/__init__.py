"""Everything that reads or writes spans of others.

`processor` sees every agent span, whoever made it, and tells the engine; `sampler` keeps spans that
will not be exported visible to it; `decoders` know the vocabularies; `findings` writes findings where
OpenTelemetry users look for them. Nothing here can prevent a call: what must prevent lives at seams.
"""
