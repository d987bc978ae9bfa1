"""A scripted model that says every secret it finds in its environment, in each way a library might."""

import logging
import os
import sys

from reasoner.records import GenerationRequest

NAMES = ("HF_TOKEN", "WANDB_API_KEY", "STORAGE_PASSWORD")


def tell(request: GenerationRequest) -> str:
    """Logs, prints and raises; never answers."""
    found = ", ".join(os.environ.get(name, "none") for name in NAMES)
    logging.getLogger("prefect.flow_runs").error("connecting with %s", found)
    logging.getLogger("reasoner").warning("connecting with " + found)
    print(f"printed {found}")
    os.write(2, f"written {found}\n".encode())
    sys.stderr.flush()
    raise RuntimeError(f"401 Unauthorized for {found}")
