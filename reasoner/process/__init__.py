"""Children that die with their parent (`child`), their progress (`progress`), and locks (`locks`)."""

from reasoner.process.child import Child, run_child, start_child
from reasoner.process.locks import FileLock

__all__ = ["Child", "FileLock", "run_child", "start_child"]
