"""Commands that run where a model is used: they need the engine and no torch."""
