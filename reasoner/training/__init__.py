"""Training: supervised fine-tuning and merging, programs that run as child processes with a JSON spec."""
