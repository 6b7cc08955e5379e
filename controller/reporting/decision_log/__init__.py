"""The decision log: records every input and decision of the engine, so that the decisions can be replayed later."""
