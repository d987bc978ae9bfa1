"""An engine that outlives its client, for the next one on the same cards (docs/design/004-kept-engine.md).

`slot` finds it or starts it, for one client at a time; `record` is what the home folder knows of it; `identity` says
who may use it again. The process itself is `keeper`, which ends everything below it, and under it the engine's worker
with its `listener`. `process` is what a client sees.
"""
