"""How a step's kernels are launched. Wrong if an option of vLLM's is read as another's."""

from typing import Any

import pytest

from reasoner.config.smart import EngineConfig
from reasoner.planning.launches import Launches, launches

OPTIONS: list[tuple[dict[str, Any], Launches]] = [
    ({}, Launches("graph", "pieces", True)),
    ({"enforce_eager": True}, Launches("kernels", "kernels", False)),
    ({"compilation_config": {"mode": 0, "cudagraph_mode": "FULL"}}, Launches("graph", "graph", False)),
    (
        {"compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}},
        Launches("graph", "kernels", False),
    ),
    ({"compilation_config": {"mode": 0}}, Launches("kernels", "kernels", False)),
    ({"compilation_config": 0}, Launches("kernels", "kernels", False)),
    ({"compilation_config": {"cudagraph_mode": "PIECEWISE"}}, Launches("pieces", "pieces", True)),
    ({"compilation_config": {"cudagraph_mode": "NONE"}}, Launches("kernels", "kernels", True)),
]


@pytest.mark.parametrize(("options", "wanted"), OPTIONS)
def test_of_vllm(options: dict[str, Any], wanted: Launches) -> None:
    assert launches(EngineConfig(kind="vllm", options=options)) == wanted


def test_an_engine_without_graphs_launches_kernels() -> None:
    found = launches(EngineConfig(kind="transformers"))
    assert found.decoding == "kernels" and not found.graphs and not found.compiled
