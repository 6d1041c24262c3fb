"""Sender: send many datagrams per system call (sendmmsg), without the GIL.

Datagrams no larger than a frame go to the kernel in one large buffer, which it cuts
(generic segmentation offload, GSO): they cost about as much as one large datagram. What
a remote peer or the network causes (ICMP errors, routes that went away, a full send
buffer) is counted and never raised. What only this program can cause (a closed
descriptor, an oversized datagram) is raised.
"""

import os

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.errno cimport EAGAIN, EBADF, EINTR, EINVAL, EIO, ENOBUFS, ENOTSOCK, EOPNOTSUPP, errno
from libc.stdint cimport uint16_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from ringcast._core.linux cimport (
    CMSG_DATA, MSG_DONTWAIT, MSG_NOSIGNAL, SEGMENT_LENGTH, SEGMENT_SPACE, SOL_UDP, UDP_SEGMENT,
    cmsghdr, iovec, mmsghdr, msghdr, sendmmsg, sockaddr_in,
)
from ringcast._core.sockets cimport MAX_DATAGRAM, SockAddr

cdef object MessageTooLargeError
from ringcast.errors import MessageTooLargeError

cdef enum:
    MOST_SEGMENTS = 64              # of one buffer, for every kernel with GSO
    MOST_RETRIES = 3                # of a message whose call was told of an earlier one's failure


cdef struct Outbox:                 # the datagrams of one send_many(), on its stack
    unsigned int count              # datagrams held
    iovec *places                   # of each datagram, as are the next two
    sockaddr_in *addresses
    Py_buffer *buffers
    mmsghdr *headers                # of each message to the kernel, as are the next two:
                                    # a message is one datagram, or several segments
    unsigned char *controls
    unsigned int *firsts            # the datagram that it begins with
    bint segments                   # datagrams may share a message
    bint refused                    # the kernel does not take segments
    unsigned int sent
    unsigned int errors             # refused by the kernel, one by one
    unsigned int dropped            # no room in the send buffer
    uint64_t bytes


cdef int flush(Outbox *box, int fd) noexcept nogil:
    """Hand all datagrams to the kernel without waiting.

    With IP_RECVERR a call may fail because an earlier datagram came to nobody (ICMP).
    The kernel says so once, and then takes the message: so every message that fails is
    tried again. A message that finds the queue of the interface full is lost (ENOBUFS;
    without IP_RECVERR the kernel does not tell), and the next ones are tried.

    Returns 0, or errno if fd is not an open socket.
    """
    cdef unsigned int done = 0, messages = compose(box, 0), retries = 0, index
    cdef int count
    while done < messages:
        count = sendmmsg(fd, box.headers + done, messages - done, MSG_DONTWAIT | MSG_NOSIGNAL)
        if count > 0:
            for index in range(done, done + <unsigned int>count):
                box.bytes += box.headers[index].msg_len
                box.sent += <unsigned int>box.headers[index].msg_hdr.msg_iovlen
            done += <unsigned int>count
            retries = 0
        elif errno == EINTR:
            continue
        elif errno == EAGAIN:
            box.dropped += box.count - box.firsts[done]
            break
        elif errno == ENOBUFS:
            box.dropped += <unsigned int>box.headers[done].msg_hdr.msg_iovlen
            done += 1
            retries = 0
        elif errno == EBADF or errno == ENOTSOCK:
            return errno
        elif retries < MOST_RETRIES:
            retries += 1
        elif box.headers[done].msg_hdr.msg_iovlen > 1:
            box.refused |= errno == EIO or errno == EINVAL or errno == EOPNOTSUPP
            box.segments = False    # send the rest one by one: only one of them may be wrong
            messages, done, retries = compose(box, box.firsts[done]), 0, 0
        else:
            box.errors += 1
            done += 1
            retries = 0
    return 0


cdef unsigned int compose(Outbox *box, unsigned int datagram) noexcept nogil:
    """Make messages of the datagrams from this one on. Returns how many messages."""
    cdef unsigned int messages = 0, taken
    cdef msghdr *header
    while datagram < box.count:
        taken = count_segments(box, datagram) if box.segments else 1
        header = &box.headers[messages].msg_hdr
        memset(header, 0, sizeof(msghdr))
        header.msg_name = &box.addresses[datagram]
        header.msg_namelen = sizeof(sockaddr_in)
        header.msg_iov = &box.places[datagram]
        header.msg_iovlen = taken
        if taken > 1:
            say_segments(header, box.controls + messages * SEGMENT_SPACE,
                         <uint16_t>box.places[datagram].iov_len)
        box.firsts[messages] = datagram
        messages += 1
        datagram += taken
    return messages


cdef unsigned int count_segments(const Outbox *box, unsigned int first) noexcept nogil:
    """Count the datagrams from `first` on that can be segments of one message.

    They have the same address and size; the last one may be shorter.
    """
    cdef size_t size = box.places[first].iov_len, total = size, length
    cdef unsigned int last = first
    while (size and last + 1 < box.count and last + 1 - first < MOST_SEGMENTS
           and box.places[last].iov_len == size):
        length = box.places[last + 1].iov_len
        if length == 0 or length > size or total + length > MAX_DATAGRAM:
            break
        if memcmp(&box.addresses[first], &box.addresses[last + 1], sizeof(sockaddr_in)) != 0:
            break
        total += length
        last += 1
    return last + 1 - first


cdef void say_segments(msghdr *header, unsigned char *control, uint16_t size) noexcept nogil:
    """Tell the kernel to cut the message into segments of this size."""
    cdef cmsghdr *message = <cmsghdr *>control
    header.msg_control = control
    header.msg_controllen = SEGMENT_SPACE
    message.cmsg_level = SOL_UDP
    message.cmsg_type = UDP_SEGMENT
    message.cmsg_len = SEGMENT_LENGTH
    memcpy(CMSG_DATA(message), &size, sizeof(uint16_t))


cdef int reserve(Outbox *box, Py_ssize_t count) except -1:
    """Allocate room for so many datagrams, in one piece. release() gives it back."""
    cdef size_t each = (sizeof(mmsghdr) + sizeof(iovec) + sizeof(Py_buffer) + SEGMENT_SPACE
                        + sizeof(sockaddr_in) + sizeof(unsigned int))
    box.headers = <mmsghdr *>PyMem_Calloc(<size_t>count, each)
    if box.headers == NULL:
        raise MemoryError(f"no room for the headers of {count} datagrams")
    box.places = <iovec *>(box.headers + count)
    box.buffers = <Py_buffer *>(box.places + count)
    box.controls = <unsigned char *>(box.buffers + count)
    box.addresses = <sockaddr_in *>(box.controls + count * SEGMENT_SPACE)
    box.firsts = <unsigned int *>(box.addresses + count)
    return 0


cdef int hold(Outbox *box, SockAddr address, object datagram, Py_ssize_t largest) except -1:
    """Put one datagram into the box. Its buffer stays locked until release()."""
    cdef unsigned int index = box.count
    cdef Py_buffer *buffer = &box.buffers[index]
    PyObject_GetBuffer(datagram, buffer, PyBUF_SIMPLE)
    box.count += 1
    if buffer.len > largest:
        raise MessageTooLargeError(f"a datagram of {buffer.len} bytes does not fit: "
                                   f"UDP takes {largest} at most here")
    box.places[index].iov_base = buffer.buf
    box.places[index].iov_len = <size_t>buffer.len
    box.addresses[index] = address.raw
    return 0


cdef void release(Outbox *box) noexcept:
    """Unlock the buffers, and give the memory back."""
    cdef unsigned int index
    for index in range(box.count):
        PyBuffer_Release(&box.buffers[index])
    PyMem_Free(box.headers)


cdef class Sender:
    """A sender of datagrams through one UDP socket, a whole batch per system call.

    `fd` stays the caller's: keep it open while `send_many` runs. `largest` is the size
    of the largest datagram in bytes. With `segments`, consecutive datagrams of one size
    to one address go to the kernel in one piece, as long as the kernel takes that; the
    network sees no difference.

    *Threads.* Several threads may run `send_many` at once, each call with its own
    headers. The counters change only with the GIL held, or in a Python without it in a
    critical section of this object. Batches of different threads may interleave.
    """

    cdef int fd
    cdef Py_ssize_t largest
    cdef readonly bint segments
    cdef readonly uint64_t calls
    cdef readonly uint64_t datagrams
    cdef readonly uint64_t bytes
    cdef readonly uint64_t unknown
    cdef readonly uint64_t errors
    cdef readonly uint64_t dropped

    def __cinit__(self, int fd, Py_ssize_t largest=MAX_DATAGRAM, bint segments=False):
        if not 1 <= largest <= MAX_DATAGRAM:
            raise ValueError(f"largest={largest} is outside 1..{MAX_DATAGRAM}")
        self.fd = fd
        self.largest = largest
        self.segments = segments

    def send_many(self, packets, dict routes not None):
        """Hand datagrams to the kernel without waiting, in order. Returns how many it
        took.

        `packets` are pairs of a key of `routes` and a bytes-like object of at most
        `largest` bytes; `routes` has the `SockAddr` of each key. A key without a route
        is counted in `unknown`. If the send buffer is full, the rest of the batch is
        dropped (`dropped`). If only the queue of the interface is full, and the socket
        has IP_RECVERR, each datagram that found no room is counted there. If the kernel
        refuses a datagram again and again (no route, forbidden by a firewall), it is
        counted in `errors`, and the next one is tried. UDP promises nothing: the layers
        above repeat.

        Raises MessageTooLargeError, TypeError, BufferError or ValueError for what is
        not such a pair (nothing is sent then), and OSError if the descriptor is not an
        open socket.
        """
        cdef tuple batch = tuple(packets)
        cdef Outbox box
        cdef int failure
        cdef SockAddr address
        cdef object member, datagram
        cdef uint64_t unknown = 0
        memset(&box, 0, sizeof(box))
        reserve(&box, len(batch))
        try:
            for member, datagram in batch:
                address = routes.get(member)
                if address is None:
                    unknown += 1
                else:
                    hold(&box, address, datagram, self.largest)
            box.segments = self.segments
            with nogil:
                failure = flush(&box, self.fd)
        finally:
            release(&box)
        self.count(&box, unknown)
        if failure:
            raise OSError(failure, os.strerror(failure))
        return box.sent

    @cython.critical_section
    cdef void count(self, const Outbox *box, uint64_t unknown) noexcept:
        """Add one call to the counters."""
        self.calls += 1
        self.datagrams += box.sent
        self.bytes += box.bytes
        self.unknown += unknown
        self.errors += box.errors
        self.dropped += box.dropped
        if box.refused and box.sent:
            self.segments = False
