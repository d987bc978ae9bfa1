"""The environment of a child: what it needs and no secrets.

Names are allowed, not forbidden, and a name that sounds like a secret never passes by itself. Nor does what a launcher
of several processes told this one (ranks, TORCHELASTIC_*): a TCP store in the child would wait for the launcher's.
What else a child needs (a token for an upload) the caller gives it explicitly.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from reasoner.redaction import SECRET

ALLOWED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|TZ|TERM|LANG|LC_.*|LD_LIBRARY_PATH|LD_PRELOAD|LIBRARY_PATH"
    r"|VIRTUAL_ENV|CONDA_PREFIX|PYTHON.*|XDG_.*|SSL_CERT_.*|CC|CXX"
    r"|CUDA_.*|NVIDIA_.*|NCCL_.*|NVSHMEM_.*|GLOO_.*|ROCR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES"
    r"|OMP_.*|MKL_.*|OPENBLAS_.*|NUMEXPR_.*|KMP_.*|GOMP_.*"
    r"|TORCH(?!ELASTIC_).*|PYTORCH_.*|TRITON_.*|VLLM_.*|HF_.*|TRANSFORMERS_.*|TOKENIZERS_.*|ACCELERATE_.*|BNB_.*"
    r"|WANDB_MODE|WANDB_DIR|WANDB_PROJECT|DO_NOT_TRACK|REASONER_.*"
)
ROOT = Path(__file__).resolve().parents[2]
"""Where this project's packages are imported from."""
DEFAULTS = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
"""A log is complete up to a crash, and a crash in native code leaves a traceback."""


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The allowed part of this process's environment, with `extra` on top."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if ALLOWED.fullmatch(name) and not SECRET.search(name)
    }
    return {**DEFAULTS, **passed, **(extra or {})}


def python_path() -> str:
    """PYTHONPATH of a process that imports this project, however this one found it."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
