"""What `reasoner evaluate` asks of a model."""

from typing import Any, Literal

from pydantic import Field, model_validator

from reasoner.config.base import Section
from reasoner.config.data import SourceConfig
from reasoner.config.smart import EngineConfig, ModelConfig, SamplingConfig, VerifyConfig


class EvaluateConfig(Section):
    """One model on one data set."""

    model: ModelConfig
    """A model, an adapter's folder, or the address of an OpenAI-compatible server."""
    base_model: str | None = None
    """The base of an adapter; unset takes the one that the adapter names."""
    served_model: str | None = None
    """The model's name on a server; unset takes the only one there."""
    data: SourceConfig
    strategy: Literal["cot", "sub", "pot", "policy"] = "cot"
    """Worked examples of one strategy; `policy` asks as SMART's models are asked, which choose one themselves."""
    exemplars: str = "gsm"
    """Which worked examples: a name under reasoner/prompts/exemplars/, or a file."""
    shots: int = Field(default=8, ge=0)
    """How many of them are shown."""
    template: str = "smart"
    """The turn of `policy`."""
    chat: bool | None = None
    """Worked examples as turns of a conversation instead of one text; unset does so on a server."""
    decoding: SamplingConfig = SamplingConfig(stop=("\nProblem:", "\nQuestion:", "\nInput:"))
    samples: int = Field(default=1, ge=1)
    """Responses a problem."""
    seed: int = 0
    engine: EngineConfig = EngineConfig()
    engines: int = Field(default=1, ge=1)
    """Engines that share the generation, as `compute.engines` of a run; a server is one whatever this says."""
    verify: VerifyConfig = VerifyConfig()
    confidence: float = Field(default=0.95, gt=0, lt=1)

    @model_validator(mode="after")
    def _samples_differ(self) -> "EvaluateConfig":
        if self.samples > 1 and self.decoding.temperature == 0:
            raise ValueError(
                "samples above 1 need decoding.temperature above 0: greedy responses are all the same"
            )
        return self

    @property
    def content_id(self) -> dict[str, Any]:
        """How many engines answer changes no answer."""
        return self.model_dump(exclude={"engines"})

    @property
    def is_served(self) -> bool:
        """Whether the model is an address."""
        return self.model.path.startswith(("http://", "https://"))

    @property
    def as_chat(self) -> bool:
        return self.is_served if self.chat is None else self.chat
