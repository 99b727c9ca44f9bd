"""The kernel's network tables over raw netlink (netlink(7)): addresses, packet filter, sockets, refused packets.

Nothing here decides anything; docs/decisions/0017 says why there is no library under it.
"""
