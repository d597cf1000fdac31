"""Pictures and the tasks drawn from them."""
