"""What every configuration section is: frozen, closed to unknown keys, documented field by field."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen section of a configuration; a key that it does not know is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=()
    )
