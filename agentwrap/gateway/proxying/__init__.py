"""Model traffic without a wall: what the gateway relays where a run keeps its network, and the proxy that it can be."""
