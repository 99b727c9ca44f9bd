"""Model traffic without a wall: what the gateway relays in a run that keeps its network, and the proxy that it can be."""
