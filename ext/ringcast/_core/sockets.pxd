"""SockAddr for other compiled modules."""

from ringcast._core.linux cimport sockaddr_in

cpdef enum:
    MAX_DATAGRAM = 65507            # 65,535 less the IPv4 header (20) and the UDP header (8)


cdef class SockAddr:
    cdef sockaddr_in raw
    cdef readonly str host
    cdef readonly int port
