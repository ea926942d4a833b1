"""How lowering rules are written: the registry, the StableHLO builder and its vocabulary."""
