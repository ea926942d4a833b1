"""The models of compiled_models.py, in PyTorch (`torch_models.py`) and in JAX (`jax_models.py`)."""
