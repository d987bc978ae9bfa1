"""The optimiser loop of the multi-turn methods; a program that runs as a child (`program.py`)."""
