"""TLS ended in the gateway for model hosts: an authority of the run, both sessions, and the bytes between them."""
