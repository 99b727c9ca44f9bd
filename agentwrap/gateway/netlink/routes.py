"""A network namespace in which every address is local: whatever a program connects to, the packet stays inside.

That is the wall itself: there is no interface but the loopback and no route that leads out. rtnetlink(7), ip-route(8)
"local"; the source address of a connection is our own, not the one that it goes to.
"""

import errno
import socket
import struct

from agentwrap.gateway.netlink import channel
from agentwrap.gateway.netlink import messages as nl

_NEW_LINK, _NEW_ADDRESS, _NEW_ROUTE = 16, 20, 24
_LOOPBACK = 1  # always the first interface of a namespace
_UP = 1
_NO_DAD = 2  # IFA_F_NODAD: an IPv6 address is usable at once
_TABLE_LOCAL, _PROTOCOL_STATIC, _SCOPE_HOST, _TYPE_LOCAL = 255, 4, 254, 2
_WITHOUT_IPV6 = {errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.EACCES, errno.ENODEV}


def set_up(own4: str, own6: str) -> bool:
    """Bring the loopback up, give it these two addresses, make all others local. Whether IPv6 works, too.

    Acts on the network namespace of the calling thread, which must be new. Raises OSError naming the step.
    """
    sock = channel.open_socket(channel.ROUTE)
    try:
        up = struct.pack("=BxHiII", 0, 0, _LOOPBACK, _UP, _UP)  # struct ifinfomsg
        channel.ask(sock, [(_NEW_LINK, nl.ACK, up, "loopback up")])
        _add(sock, socket.AF_INET, socket.inet_pton(socket.AF_INET, own4), 0, _SCOPE_HOST)
        packed6 = socket.inet_pton(socket.AF_INET6, own6)
        try:
            _add(sock, socket.AF_INET6, packed6, _NO_DAD, 0)
        except OSError as error:
            # Built without it, ipv6.disable=1, or disabled on the interface.
            if error.errno in _WITHOUT_IPV6:
                return False
            raise
        return True
    finally:
        sock.close()


def _add(sock: socket.socket, family: int, own: bytes, flags: int, scope: int) -> None:
    flags_new = nl.ACK | nl.CREATE | nl.EXCLUSIVE
    # struct ifaddrmsg; IFA_LOCAL, IFA_ADDRESS
    address = struct.pack("=BBBBI", family, len(own) * 8, flags, 0, _LOOPBACK)
    address += nl.attribute(2, own) + nl.attribute(1, own)
    # struct rtmsg; RTA_OIF, RTA_PREFSRC
    route = struct.pack("=BBBBBBBBI", family, 0, 0, 0, _TABLE_LOCAL, _PROTOCOL_STATIC, scope, _TYPE_LOCAL, 0)
    route += nl.attribute(4, struct.pack("=I", _LOOPBACK)) + nl.attribute(7, own)
    # One by one: the route wants the address to be there.
    channel.ask(sock, [(_NEW_ADDRESS, flags_new, address, "own address")])
    channel.ask(sock, [(_NEW_ROUTE, flags_new, route, "every address local")])
