"""Publishing to the Hugging Face Hub: a scan for secrets, a model card with measured results, one commit,
never twice."""
