"""Side effects: who may cause one, and what is known of it afterwards.

Read `ledger` first: the states, the table of moves and the `Ledger` protocol. `machine` carries the table
out over any store, `keys` says what makes two calls the same effect, `decisions` what to do with a record
that is already there, `execution` runs a tool under all of this. `values` keeps results as JSON.

What is promised, by `on_unknown`:

==========  =====================  ==============================================  =====================
setting     name                   duplicates                                      can end unresolved
==========  =====================  ==============================================  =====================
`block`     at most once           none                                            yes, as `UNKNOWN`
`retry`     at least once          counted: effects <= 1 + `maybe_duplicates`      no
`verify`    verified               none where the owner is provably dead           no
`tx=conn`   exactly once           none                                            no
==========  =====================  ==============================================  =====================

A callee that dedupes on the key that it is handed makes `retry` effectively once, for as long as it
remembers keys.
"""
