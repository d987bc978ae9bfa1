"""How an engine's configuration has the kernels of a step launched on a card: one by one, in pieces, or as a graph.

As vLLM reads `enforce_eager` and `compilation_config`: by itself it compiles the model in pieces, with a graph for a
step that only decodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from reasoner.config.smart import EngineConfig
from reasoner.records import Record

Launch = Literal["graph", "pieces", "kernels"]


@dataclass(frozen=True, slots=True)
class Launches(Record):
    """Of an engine's steps."""

    decoding: Launch
    """A step that only decodes."""
    mixed: Launch
    """One that a prompt joins."""
    compiled: bool
    """Whether torch.compile runs at the start."""

    @property
    def graphs(self) -> bool:
        """Whether graphs are captured at the start."""
        return self.decoding != "kernels"


EAGER = Launches("kernels", "kernels", False)


def launches(engine: EngineConfig) -> Launches:
    """What the engine's options say; an engine without graphs launches kernels."""
    if engine.kind != "vllm" or engine.options.get("enforce_eager"):
        return EAGER
    found: Any = engine.options.get("compilation_config", {})
    config: Mapping[str, Any] = found if isinstance(found, Mapping) else {"mode": found}
    compiled = config.get("mode", 3) not in (0, "NONE")
    graphs = str(config.get("cudagraph_mode", "FULL_AND_PIECEWISE" if compiled else "NONE")).upper()
    if graphs == "NONE":
        return Launches("kernels", "kernels", compiled)
    if graphs == "FULL":
        return Launches("graph", "graph", compiled)
    mixed: Launch = "pieces" if "PIECEWISE" in graphs and compiled else "kernels"
    return Launches(mixed if graphs == "PIECEWISE" else "graph", mixed, compiled)
