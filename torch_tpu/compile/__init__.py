"""torch.compile on the device: from a captured graph to a callable.

`backend.py` is what Dynamo calls, `operator.py` makes a graph an operator of the core, `symbols.py`
knows the sizes of a dynamic graph, `inspect.py` what the parts of a graph are. Lowering itself is
`program/graph.py`, with the same rules as eager calls.
"""
