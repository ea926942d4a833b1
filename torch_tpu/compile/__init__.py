"""torch.compile on the device: from a captured graph to a callable.

`backend.py` is what Dynamo calls. `host.py` splits off what a graph computes on the CPU (and
`vectorize.py` makes that quick), `operator.py` makes the rest an operator of the core, `buckets.py`
one with a program for each set of rounded sizes. `inspect.py` knows what the parts of a graph are,
`symbols.py` the sizes of a dynamic one. `saved.py` lets AOTAutograd keep a graph for further
processes, `record.py` is the form it is kept in. `options.py` checks ``options=``,
`device_interface.py` is torch.tpu for Dynamo. Lowering itself is `program/graph.py` and
`program/padded.py`, with the same rules as eager calls.
"""
