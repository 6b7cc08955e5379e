"""Controllers of everything but admission: each watches its objects, queues the changed ones and reconciles them."""
