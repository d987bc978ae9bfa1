"""The methods that our engine adds to vLLM's worker processes. Imported by vLLM only.

vLLM mixes this class into its worker (`worker_extension_cls`) and calls a method by name (`collective_rpc`), which
needs no pickled function and works the same where the worker is this process (CPU) or another one (CUDA).
"""

import importlib

PINNING = ("vllm.lora.lora_model", "vllm.lora.lora_weights", "vllm.lora.model_manager")
"""The modules of vLLM (0.24 and 0.31) that ask PIN_MEMORY whether to pin an adapter's tensors."""


class WorkerExtension:
    """What a vLLM worker of ours can do besides."""

    def reasoner_reseed(self, seed: int) -> None:
        """Start the sampler's random stream anew from `seed`."""
        from vllm.utils.torch_utils import set_random_seed

        set_random_seed(seed)

    def reasoner_leave_unpinned(self) -> None:
        """Copy adapters to the card from plain memory.

        vLLM pins each tensor of an adapter twice. With 392 tensors, 37 MB, those 784 calls took 1.8 of the 3.0 s
        (profiled) that loading it took on a busy host with an H200; the copy that they are to speed up takes
        milliseconds.
        """
        for name in PINNING:
            importlib.import_module(name).PIN_MEMORY = False  # type: ignore[attr-defined]
