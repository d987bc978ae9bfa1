"""Training: supervised fine-tuning and merging, each a program that runs as a child process with a JSON spec."""
