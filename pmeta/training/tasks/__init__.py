"""Which tasks a training draws."""
