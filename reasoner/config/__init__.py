"""Configuration: pydantic models, composed from the YAML files under configs/ by Hydra's compose API."""
