"""Addresses and options of UDP sockets, for IPv4 on Linux.

receiver.pyx reads from such sockets, sender.pyx sends through them.
"""

import os
import socket

from libc.errno cimport errno
from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcpy

from ringcast._core.linux cimport (
    AF_INET, BPF_ABS, BPF_B, BPF_H, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_LEN, BPF_RET,
    BPF_W, SKF_NET_OFF, SO_ATTACH_FILTER, SO_RCVBUFFORCE, SOL_SOCKET, htons, in_addr, ntohl,
    setsockopt, sock_filter, sock_fprog,
)

cdef enum:
    IP_SOURCE = 12                  # offset of the source address in an IPv4 header
    KIND = 8 + 3                    # of a datagram's kind behind the UDP header (wire.pyx)
    MOST_KINDS = 32                 # that a filter compares
    OWN_STEPS = 5                   # of a filter, which discard own datagrams
    KEEP_ALL = 0xFFFFFFFF


cdef class SockAddr:
    """An IPv4 address and UDP port in the form that the kernel takes.

    It is made once and used for every datagram. `host` is four numbers ("127.0.0.1"),
    never a name: nothing here asks a resolver. `port` is 1..65535. Anything else raises
    ValueError, or TypeError for a wrong type. Immutable, so any thread may use it.
    """

    def __cinit__(self, str host not None, int port):
        cdef bytes packed
        if not 1 <= port <= 65535:
            raise ValueError(f"port {port} is outside 1..65535")
        try:
            packed = socket.inet_pton(socket.AF_INET, host)
        except (OSError, ValueError):
            raise ValueError(f"{host!r} is not an IPv4 address in the form 127.0.0.1") from None
        self.host, self.port = host, port
        self.raw.sin_family = AF_INET
        self.raw.sin_port = htons(<uint16_t>port)
        memcpy(&self.raw.sin_addr, <const char *>packed, sizeof(in_addr))

    def __repr__(self):
        return f"SockAddr({self.host!r}, {self.port})"


def drop_own(int fd, str host not None, int port, kinds=None, bint wanted=True):
    """Make the kernel discard datagrams from `host` and `port` on the UDP socket `fd`.

    Members on one host hear each other only with IP_MULTICAST_LOOP on, and then each
    hears itself too. This filter drops a member's own datagrams before they take room
    in the receive buffer. A second call replaces the first.

    With `kinds`, at most 32, it also discards datagrams of all kinds but these; without
    `wanted`, those of these kinds. So two sockets can share what comes to one address.
    What is too short to have a kind counts as a kind that is not among them.

    Raises ValueError for what `SockAddr` does not take and for too many kinds, OSError
    if the kernel refuses.
    """
    cdef SockAddr own = SockAddr(host, port)
    cdef list numbers = sorted(kinds) if kinds is not None else []
    cdef bint keeps_others = kinds is None or not wanted
    cdef sock_filter[OWN_STEPS + MOST_KINDS + 5] steps
    cdef sock_fprog program
    cdef unsigned char left = <unsigned char>len(numbers)
    cdef unsigned short at = OWN_STEPS
    if len(numbers) > MOST_KINDS:
        raise ValueError(f"a filter compares {MOST_KINDS} kinds at most, not {len(numbers)}")
    steps[0] = sock_filter(BPF_LD | BPF_W | BPF_ABS, 0, 0, <uint32_t>(SKF_NET_OFF + IP_SOURCE))
    steps[1] = sock_filter(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, ntohl(own.raw.sin_addr.s_addr))
    steps[2] = sock_filter(BPF_LD | BPF_H | BPF_ABS, 0, 0, 0)       # offset 0: the UDP header
    steps[3] = sock_filter(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, <uint32_t>port)
    steps[4] = sock_filter(BPF_RET | BPF_K, 0, 0, 0)                # keep nothing
    if left:
        steps[at] = sock_filter(BPF_LD | BPF_W | BPF_LEN, 0, 0, 0)
        steps[at + 1] = sock_filter(BPF_JMP | BPF_JGE | BPF_K, 0, <unsigned char>(left + 1),
                                    KIND + 1)
        steps[at + 2] = sock_filter(BPF_LD | BPF_B | BPF_ABS, 0, 0, KIND)
        at += 3
        for number in numbers:
            steps[at] = sock_filter(BPF_JMP | BPF_JEQ | BPF_K, left, 0, <uint32_t>number)
            at += 1
            left -= 1
    steps[at] = sock_filter(BPF_RET | BPF_K, 0, 0, KEEP_ALL if keeps_others else 0)
    steps[at + 1] = sock_filter(BPF_RET | BPF_K, 0, 0, 0 if keeps_others else KEEP_ALL)
    program.len = at + 2
    program.filter = steps
    if setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0:
        raise OSError(errno, os.strerror(errno))


def size_receive_buffer(sock, int size):
    """Ask for a receive buffer of `size` bytes of datagrams on `sock`.

    Returns what the kernel granted. The kernel counts its own overhead too, and so
    doubles what was asked for: `2 * size` is a full grant. Less means that
    `net.core.rmem_max` is smaller, and this process may not exceed it (CAP_NET_ADMIN
    may).
    """
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
