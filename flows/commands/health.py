"""Whether a Prefect server answers. Nothing of Prefect is imported, which reads the server's address once."""

import urllib.error
import urllib.request


def answers(url: str) -> bool:
    """Whether the API at `url` (".../api") says within 5 s that it is well."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False
