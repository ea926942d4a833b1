"""From rules to an executable: tracing, the StableHLO module, compilation."""
