"""Multi-turn reasoning: SCoRe, RL-guided SCoRe, MLMT-RL and ArCHer, one algorithm a file (METHODS 3).

Pure logic: episodes and numbers in, credits and losses out. Models, engines and optimisers are elsewhere
(`reasoner.training.multiturn`).
"""
