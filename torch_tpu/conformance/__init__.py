"""The conformance run: PyTorch's own operator, module and optimiser databases against CPU PyTorch.

``python -m torch_tpu.conformance`` runs it; `docs/conformance.md` explains it. The rooms, in the
order in which data flows: `units` (what there is to run), `pool` (worker processes), `worker`,
`opinfo`/`modules`/`optimizers` (what one unit does), `calls` and `inputs` (samples, variations,
copies), `compare` (what counts as equal), `journal` (what was found), `report` (the tables).
Compile-only runs, for TPUs that are not attached, are `target` and `programs`.

Nothing here is imported by the rest of the package.
"""
