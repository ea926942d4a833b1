"""What users call: the modules behind `torch.tpu`."""
