"""The one method that our engine adds to vLLM's worker processes. Imported by vLLM only.

vLLM mixes this class into its worker (`worker_extension_cls`) and calls the method by name
(`collective_rpc`), which needs no pickled function and works the same where the worker is this process
(CPU) or another one (CUDA).
"""


class ReseedExtension:
    """Adds `reasoner_reseed` to a vLLM worker."""

    def reasoner_reseed(self, seed: int) -> None:
        """Start the sampler's random stream anew from `seed`."""
        from vllm.utils.torch_utils import set_random_seed

        set_random_seed(seed)
