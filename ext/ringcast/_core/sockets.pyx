"""Many datagrams per system call, with the GIL released: recvmmsg and sendmmsg, for UDP over IPv4 on Linux.

`Receiver` reads a set of sockets into memory that it allocates once; what it returns are read-only views of that
memory, valid until the next call. `Sender` hands a whole batch of datagrams to the kernel; where a datagram is no
larger than a frame it lets the kernel cut one large buffer into them (generic segmentation offload, GSO), at about the
cost of one large datagram. What a remote peer or a failing network causes (truncated datagrams, ICMP errors, routes that went away, a full send buffer) is counted and never
raised; what only this program can cause (a closed descriptor, an oversized datagram) is raised.
"""

import os
import socket

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.errno cimport EAGAIN, EBADF, EINTR, EINVAL, EIO, ENOBUFS, ENOTSOCK, EOPNOTSUPP, errno
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from ringcast.errors import MessageTooLargeError


cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
    int POLLIN
    int ppoll(pollfd *fds, unsigned long count, const timespec *timeout, const void *sigmask)

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec *now)

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void **memory, size_t alignment, size_t size)

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<unistd.h>" nogil:
    int close_descriptor "close" (int fd)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_CLOEXEC
    int EFD_NONBLOCK
    int eventfd(unsigned int value, int flags)
    int eventfd_read(int fd, uint64_t *value)
    int eventfd_write(int fd, uint64_t value)

cdef extern from "<sys/socket.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    struct msghdr:
        void *msg_name
        unsigned int msg_namelen
        iovec *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
        int msg_flags
    struct cmsghdr:
        size_t cmsg_len
        int cmsg_level
        int cmsg_type
    struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len
    int MSG_DONTWAIT
    int MSG_NOSIGNAL
    int MSG_TRUNC
    int SOL_SOCKET
    int SO_ATTACH_FILTER
    int SO_RCVBUFFORCE
    int recvmmsg(int fd, mmsghdr *headers, unsigned int count, int flags, timespec *timeout)
    int sendmmsg(int fd, mmsghdr *headers, unsigned int count, int flags)
    int setsockopt(int fd, int level, int option, const void *value, unsigned int size)

cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        uint32_t s_addr
    struct sockaddr_in:
        unsigned short sin_family
        uint16_t sin_port
        in_addr sin_addr
    int AF_INET
    uint16_t htons(uint16_t value)
    uint32_t ntohl(uint32_t value)

cdef extern from "<linux/filter.h>" nogil:
    struct sock_filter:
        uint16_t code
        unsigned char jt
        unsigned char jf
        uint32_t k
    struct sock_fprog:
        unsigned short len
        sock_filter *filter
    uint16_t BPF_LD, BPF_W, BPF_H, BPF_ABS, BPF_JMP, BPF_JEQ, BPF_K, BPF_RET
    int SKF_NET_OFF


cdef extern from *:
    """
    #define FOR_EVER (-1)
    #define LONGEST_WAIT (INT64_C(1) << 62)     /* nanoseconds; a deadline of now plus this cannot overflow */
    """
    const int64_t FOR_EVER
    const int64_t LONGEST_WAIT

cdef extern from *:
    """
    #include <netinet/udp.h>
    #ifndef UDP_SEGMENT
    #define UDP_SEGMENT 103             /* Linux 4.18; older headers do not name it */
    #endif
    #define SEGMENT_SPACE CMSG_SPACE(sizeof(uint16_t))
    #define SEGMENT_LENGTH CMSG_LEN(sizeof(uint16_t))
    """
    int SOL_UDP
    int UDP_SEGMENT
    const size_t SEGMENT_SPACE
    const size_t SEGMENT_LENGTH
    unsigned char *CMSG_DATA(cmsghdr *header) nogil

cdef enum:
    ERRORS_PER_READ = 64            # errors taken off one socket in a row before the other sockets get their turn
    IP_SOURCE = 12                  # offset of the source address in an IPv4 header
    MOST_SLOTS = 1024               # what one recvmmsg() takes (UIO_MAXIOV)
    LARGEST_SLOT = 65536
    MOST_SEGMENTS = 64              # that every kernel with GSO cuts one buffer into

cpdef enum:
    MAX_DATAGRAM = 65507            # 65,535 less the IPv4 header (20) and the UDP header (8)


# -- Addresses --------------------------------------------------------------------------------------------------------

cdef class SockAddr:
    """An IPv4 address and UDP port in the form that the kernel takes, prepared once and used for every datagram.

    `host` is four numbers ("127.0.0.1"), never a name: nothing here asks a resolver. `port` is 1..65535. Anything else
    raises ValueError, or TypeError for a wrong type. Immutable, so any thread may use it.
    """

    cdef sockaddr_in raw
    cdef readonly str host
    cdef readonly int port

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


# -- Receiving --------------------------------------------------------------------------------------------------------

cdef struct Intake:                 # written by the receiving thread alone, with or without the GIL
    unsigned int sockets
    unsigned int slots              # of each socket; socket i owns headers[i * slots] and following
    pollfd *polls                   # the sockets, then the eventfd
    int *counts                     # datagrams that the last read put into the slots of each socket
    mmsghdr *headers
    iovec *places
    uint64_t errors                 # taken off sockets since the last call
    int64_t spin_ns                 # how long to look again and again before sleeping, when that has paid lately
    bint quick                      # the last wait ended within that time


cdef int read_socket(Intake *intake, unsigned int which) noexcept nogil:
    """Read one socket without waiting; returns the number of datagrams, or -errno when it is no open socket."""
    cdef mmsghdr *first = intake.headers + which * intake.slots
    cdef int count, attempts = ERRORS_PER_READ
    while attempts > 0:
        attempts -= 1
        count = recvmmsg(intake.polls[which].fd, first, intake.slots, MSG_DONTWAIT, NULL)
        if count >= 0:
            return count
        if errno == EAGAIN:
            return 0
        if errno == EBADF or errno == ENOTSOCK:
            return -errno
        if errno != EINTR:
            intake.errors += 1      # an ICMP error waiting on the socket: reading it has cleared it
    return 0


cdef int read_all(Intake *intake) noexcept nogil:
    """Read every socket once; returns the number of datagrams together, or -errno."""
    cdef int total = 0, count
    cdef unsigned int which
    for which in range(intake.sockets):
        count = read_socket(intake, which)
        if count < 0:
            return count
        intake.counts[which] = count
        total += count
    return total


cdef int collect(Intake *intake, int64_t wait_ns) noexcept nogil:
    """Read; if nothing was there, wait once and read again. Returns the number of datagrams, or -errno.

    An error taken off a socket is something that was there, whether it came before the wait or ended it.
    """
    cdef timespec timeout
    cdef int64_t began
    cdef int count = read_all(intake)
    if count != 0 or wait_ns == 0 or intake.errors:
        return count
    began = monotonic_ns() if intake.spin_ns else 0
    if intake.spin_ns and intake.quick:
        count = spin(intake, began + (intake.spin_ns if wait_ns == FOR_EVER else min(intake.spin_ns, wait_ns)))
        if count != 0 or intake.errors:
            return count
    timeout.tv_sec = <long>(wait_ns // 1000000000)
    timeout.tv_nsec = <long>(wait_ns % 1000000000)
    count = ppoll(intake.polls, intake.sockets + 1, NULL if wait_ns == FOR_EVER else &timeout, NULL)
    if count < 0:
        return -errno
    count = read_all(intake)
    if intake.spin_ns:
        intake.quick = count > 0 and monotonic_ns() - began < intake.spin_ns
    return count


cdef int spin(Intake *intake, int64_t until) noexcept nogil:
    """Read again and again until then; 0 when nothing came. To be woken takes longer than an answer that is nearly there."""
    cdef int count = 0
    while count == 0 and not intake.errors and monotonic_ns() < until:
        count = read_all(intake)
        if count == 0:
            sched_yield()               # whoever is to answer may have no other core
    return count


cdef int64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef int64_t wait_of(object timeout_ns) except? -2:
    """None is for ever; a time that has already passed is 0."""
    if timeout_ns is None:
        return FOR_EVER
    cdef int64_t wait = timeout_ns
    return min(max(wait, 0), LONGEST_WAIT)


cdef class _Slab:
    """Page-aligned memory for the slots; every view that was handed out keeps it, so none can ever dangle."""

    cdef unsigned char *memory
    cdef Py_ssize_t size

    def __cinit__(self, size_t size):
        if posix_memalign(<void **>&self.memory, os.sysconf("SC_PAGESIZE"), size) != 0:
            self.memory = NULL
            raise MemoryError(f"no room for {size} bytes of receive slots")
        self.size = <Py_ssize_t>size

    def __dealloc__(self):
        free(self.memory)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.memory, self.size, 1, flags)


cdef class Receiver:
    """Reads datagrams from UDP sockets, many per system call, into slots allocated once.

    Args:
        fds: descriptors of the sockets, 1..1024. They stay the caller's: keep them open while `receive` runs, close
            them afterwards.
        slots: datagrams that one call takes from each socket at most, 1..1024. More slots are fewer system calls, but
            their memory falls out of the processor's cache before it is read: of 2 .. 64 slots of 64 KiB, 4 and 8 were
            fastest with 60 KB datagrams (16 some 8 percent slower), 16 and more with 100 B ones.
        datagram_size: bytes of one slot, 1..65536; a longer datagram is dropped and counted in `truncated`.

    Raises ValueError outside these limits, OSError when the kernel gives no eventfd, MemoryError without room for
    `slots * datagram_size` bytes per socket.

    Threads: one thread at a time is inside `receive` (a second gets RuntimeError). `wake`, `close` and the counters are
    for any thread: like the flags `receiving` and `woken` they are touched only with the GIL held, and the stretch of
    `receive` without the GIL touches neither; what it counts is added to the counters after the GIL is back.
    """

    cdef Intake intake
    cdef int event
    cdef bint receiving             # somebody is inside receive(), perhaps waiting
    cdef bint woken                 # a wake() that no receive() has answered yet
    cdef bint closed
    cdef list views                 # one of each whole slot, in the order of intake.headers
    cdef readonly uint64_t calls
    cdef readonly uint64_t datagrams
    cdef readonly uint64_t bytes
    cdef readonly uint64_t truncated
    cdef readonly uint64_t errors

    def __cinit__(self, fds, int slots=8, int datagram_size=65536):
        self.event = -1
        cdef list descriptors = list(fds)
        if not 1 <= len(descriptors) <= 1024:
            raise ValueError(f"a receiver reads 1 to 1024 sockets, not {len(descriptors)}")
        if not 1 <= slots <= MOST_SLOTS:
            raise ValueError(f"slots={slots} is outside 1..{MOST_SLOTS}")
        if not 1 <= datagram_size <= LARGEST_SLOT:
            raise ValueError(f"datagram_size={datagram_size} is outside 1..{LARGEST_SLOT}")
        self.intake.sockets = <unsigned int>len(descriptors)
        self.intake.slots = <unsigned int>slots
        self.allocate()
        self.lay_out(datagram_size)
        self.watch(descriptors)

    cdef int allocate(self) except -1:
        cdef Intake *intake = &self.intake
        cdef size_t total = intake.sockets * intake.slots
        intake.polls = <pollfd *>PyMem_Calloc(intake.sockets + 1, sizeof(pollfd))
        intake.counts = <int *>PyMem_Calloc(intake.sockets, sizeof(int))
        intake.headers = <mmsghdr *>PyMem_Calloc(total, sizeof(mmsghdr))
        intake.places = <iovec *>PyMem_Calloc(total, sizeof(iovec))
        if not (intake.polls and intake.counts and intake.headers and intake.places):
            raise MemoryError("no room for the headers of the receive slots")
        return 0

    cdef int lay_out(self, int datagram_size) except -1:
        """Give each header its slot; slots start on a page."""
        cdef size_t page = os.sysconf("SC_PAGESIZE")
        cdef size_t stride = (datagram_size + page - 1) // page * page
        cdef size_t total = self.intake.sockets * self.intake.slots, index
        cdef _Slab slab = _Slab(total * stride)
        cdef object whole = memoryview(slab)
        self.views = []
        for index in range(total):
            self.intake.places[index].iov_base = slab.memory + index * stride
            self.intake.places[index].iov_len = <size_t>datagram_size
            self.intake.headers[index].msg_hdr.msg_iov = &self.intake.places[index]
            self.intake.headers[index].msg_hdr.msg_iovlen = 1
            self.views.append(whole[index * stride:index * stride + datagram_size])
        return 0

    cdef int watch(self, list descriptors) except -1:
        cdef Py_ssize_t index
        cdef int descriptor
        self.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.event < 0:
            raise OSError(errno, os.strerror(errno))
        for index, descriptor in enumerate([*descriptors, self.event]):
            self.intake.polls[index].fd = descriptor
            self.intake.polls[index].events = <short>POLLIN
        return 0

    def __dealloc__(self):
        if self.event >= 0:
            close_descriptor(self.event)
        PyMem_Free(self.intake.polls)
        PyMem_Free(self.intake.counts)
        PyMem_Free(self.intake.headers)
        PyMem_Free(self.intake.places)

    def receive(self, timeout_ns=None, int64_t spin_ns=0):
        """Return the datagrams that have arrived, waiting for some if there are none.

        For `spin_ns` nanoseconds a wait looks again and again before it sleeps, once a wait has ended within that time: two
        members that answer each other need no wake-up.

        `timeout_ns` None waits for ever, 0 (or less) not at all. The answer is empty when the time has passed, after a
        `wake`, and also early when all that came was truncated or an ICMP error. Order is that of the sockets given, and
        of arrival in each.

        The views are read-only and **valid until the next call**, which overwrites their memory (copy what must live
        longer); reading an outdated view is safe but shows other bytes.

        Raises OSError when a descriptor is not an open socket, RuntimeError when another thread is inside, ValueError
        after `close`, and whatever a Python signal handler raises (KeyboardInterrupt) during the wait.
        """
        cdef int64_t wait = wait_of(timeout_ns)
        self.enter()
        self.intake.spin_ns = max(0, spin_ns)
        try:
            return self.take(self.wait_and_read(wait))
        finally:
            self.leave()

    cdef int enter(self) except -1:
        if self.closed:
            raise ValueError("this receiver is closed")
        if self.receiving:
            raise RuntimeError("another thread is already inside receive(); one receiver has one reading thread")
        self.receiving = True
        return 0

    cdef int wait_and_read(self, int64_t wait) except -1:
        """One stretch without the GIL; a signal ends it, and after the Python handlers have run the next one begins."""
        cdef int64_t deadline = monotonic_ns() + wait
        cdef int count = -EINTR
        while count == -EINTR:
            PyErr_CheckSignals()
            if self.woken:
                wait = 0
            elif wait != FOR_EVER:
                wait = max(deadline - monotonic_ns(), 0)
            with nogil:
                count = collect(&self.intake, wait)
        if count < 0:
            raise OSError(-count, os.strerror(-count))
        return count

    cdef list take(self, int count):
        """Views of what the last read left in the slots, and the counters brought up to date."""
        cdef list datagrams = []
        cdef size_t which, first, slot
        cdef mmsghdr *header
        if count == 0:
            return datagrams
        for which in range(self.intake.sockets):
            first = which * self.intake.slots
            for slot in range(first, first + <size_t>self.intake.counts[which]):
                header = &self.intake.headers[slot]
                if header.msg_hdr.msg_flags & MSG_TRUNC:
                    self.truncated += 1
                    continue
                datagrams.append(self.views[slot][:header.msg_len])
                self.bytes += header.msg_len
        self.datagrams += <uint64_t>len(datagrams)
        return datagrams

    cdef void leave(self) noexcept:
        """The way out of receive(): answers every wake() so far, and drains the eventfd if one of them wrote to it."""
        cdef uint64_t wakes = 0
        if self.woken:
            eventfd_read(self.event, &wakes)
        self.woken = self.receiving = False
        self.calls += 1
        self.errors += self.intake.errors
        self.intake.errors = 0

    def wake(self):
        """Make `receive` return: the one that waits now, or else the next one, at once. Wakes collapse into one.

        For any thread, and for signal handlers written in Python. Does nothing after `close`.
        """
        if self.woken or self.closed:
            return
        self.woken = True
        if self.receiving:
            eventfd_write(self.event, 1)

    def close(self):
        """Give the eventfd back; a second call does nothing. The sockets stay open: they are the caller's.

        Raises RuntimeError while somebody is inside `receive`: `wake` it first.
        """
        if self.receiving:
            raise RuntimeError("receive() is running; wake it and let it return before close()")
        if not self.closed:
            self.closed = True
            close_descriptor(self.event)
            self.event = -1

    def forget(self):
        """Give the eventfd back in a forked child, where nobody is inside `receive` any more, whatever is noted here."""
        self.receiving = False
        self.close()


# -- Sending ----------------------------------------------------------------------------------------------------------

cdef struct Outbox:                 # one call's datagrams; on the stack of send_many(), so calls do not share it
    unsigned int count              # datagrams held
    iovec *places                   # of each datagram, as are the next two
    sockaddr_in *addresses
    Py_buffer *buffers
    mmsghdr *headers                # of each message to the kernel, as are the next two: one datagram, or several segments
    unsigned char *controls
    unsigned int *firsts            # which datagram it begins with
    bint segments                   # datagrams may share a message
    bint refused                    # the kernel does not take segments, but does take the datagrams one by one
    unsigned int sent
    unsigned int errors             # refused by the kernel, one by one
    unsigned int dropped            # no room in the send buffer
    uint64_t bytes


cdef int flush(Outbox *box, int fd) noexcept nogil:
    """Hand all that is held to the kernel without waiting; returns 0, or errno when fd is not an open socket."""
    cdef unsigned int done = 0, messages = compose(box, 0), index
    cdef int count
    while done < messages:
        count = sendmmsg(fd, box.headers + done, messages - done, MSG_DONTWAIT | MSG_NOSIGNAL)
        if count > 0:
            for index in range(done, done + <unsigned int>count):
                box.bytes += box.headers[index].msg_len
                box.sent += <unsigned int>box.headers[index].msg_hdr.msg_iovlen
            done += <unsigned int>count
        elif errno == EAGAIN or errno == ENOBUFS:
            box.dropped = box.count - box.firsts[done]
            break
        elif errno == EBADF or errno == ENOTSOCK:
            return errno
        elif errno != EINTR and box.headers[done].msg_hdr.msg_iovlen > 1:
            box.refused |= errno == EIO or errno == EINVAL or errno == EOPNOTSUPP
            box.segments = False        # the rest one by one: what is wrong with one of them is not the fault of all
            messages, done = compose(box, box.firsts[done]), 0
        elif errno != EINTR:
            box.errors += 1
            done += 1
    return 0


cdef unsigned int compose(Outbox *box, unsigned int datagram) noexcept nogil:
    """Make messages of the datagrams from this one on; returns how many messages."""
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
            say_segments(header, box.controls + messages * SEGMENT_SPACE, <uint16_t>box.places[datagram].iov_len)
        box.firsts[messages] = datagram
        messages += 1
        datagram += taken
    return messages


cdef unsigned int count_segments(const Outbox *box, unsigned int first) noexcept nogil:
    """How many datagrams from `first` on can be segments of one message: to the same address, of one size; the last one
    may be shorter."""
    cdef size_t size = box.places[first].iov_len, total = size, length
    cdef unsigned int last = first
    while size and last + 1 < box.count and last + 1 - first < MOST_SEGMENTS and box.places[last].iov_len == size:
        length = box.places[last + 1].iov_len
        if length == 0 or length > size or total + length > MAX_DATAGRAM:
            break
        if memcmp(&box.addresses[first], &box.addresses[last + 1], sizeof(sockaddr_in)) != 0:
            break
        total += length
        last += 1
    return last + 1 - first


cdef void say_segments(msghdr *header, unsigned char *control, uint16_t size) noexcept nogil:
    """The kernel is to cut the message into segments of this size."""
    cdef cmsghdr *message = <cmsghdr *>control
    header.msg_control = control
    header.msg_controllen = SEGMENT_SPACE
    message.cmsg_level = SOL_UDP
    message.cmsg_type = UDP_SEGMENT
    message.cmsg_len = SEGMENT_LENGTH
    memcpy(CMSG_DATA(message), &size, sizeof(uint16_t))


cdef int reserve(Outbox *box, Py_ssize_t count) except -1:
    """Room for so many datagrams, in one piece; release() gives it back."""
    cdef size_t each = (sizeof(mmsghdr) + sizeof(iovec) + sizeof(Py_buffer) + SEGMENT_SPACE + sizeof(sockaddr_in)
                        + sizeof(unsigned int))
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
    """Put one datagram into the box; its buffer stays locked until release()."""
    cdef unsigned int index = box.count
    cdef Py_buffer *buffer = &box.buffers[index]
    PyObject_GetBuffer(datagram, buffer, PyBUF_SIMPLE)
    box.count += 1
    if buffer.len > largest:
        raise MessageTooLargeError(f"a datagram of {buffer.len} bytes does not fit: UDP takes {largest} at most here")
    box.places[index].iov_base = buffer.buf
    box.places[index].iov_len = <size_t>buffer.len
    box.addresses[index] = address.raw
    return 0


cdef void release(Outbox *box) noexcept:
    cdef unsigned int index
    for index in range(box.count):
        PyBuffer_Release(&box.buffers[index])
    PyMem_Free(box.headers)


cdef class Sender:
    """Sends datagrams through one UDP socket, a whole batch per system call.

    `fd` stays the caller's: keep it open while `send_many` runs. `largest` is the largest datagram that it takes. With
    `segments`, consecutive datagrams of one size to one address go to the kernel in one piece, as long as it takes them
    like that; the network sees no difference.

    Threads: `send_many` may run in several threads at once, each call with its own headers; the counters change only
    with the GIL held. Batches of different threads may interleave.
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
        """Hand datagrams to the kernel without waiting, in order; returns how many it took.

        `packets` are pairs of a key of `routes` and a bytes-like object of at most `largest` bytes; `routes` has the
        `SockAddr` of each key. A key that is not there is counted in `unknown`. When the send buffer is full the rest of
        the batch is dropped (`dropped`); a datagram that the kernel refuses (no route, port unreachable, forbidden by a
        firewall) is counted in `errors`, and the next one is tried. UDP promises nothing: the layers above repeat.

        Raises MessageTooLargeError, TypeError, BufferError or ValueError for what is not such a pair (nothing is sent
        then), and OSError when the descriptor is not an open socket.
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

    cdef void count(self, const Outbox *box, uint64_t unknown) noexcept:
        self.calls += 1
        self.datagrams += box.sent
        self.bytes += box.bytes
        self.unknown += unknown
        self.errors += box.errors
        self.dropped += box.dropped
        if box.refused and box.sent:
            self.segments = False


# -- Options ----------------------------------------------------------------------------------------------------------

def drop_own(int fd, str host not None, int port):
    """Make the kernel discard, on UDP socket `fd`, datagrams whose source is `host` and `port`.

    Members on one host hear each other only with IP_MULTICAST_LOOP on, and then each hears itself too; this filter throws
    the own datagrams away before they take room in the receive buffer. A second call replaces the first.

    Raises ValueError for what `SockAddr` does not take, OSError when the kernel refuses.
    """
    cdef SockAddr own = SockAddr(host, port)
    cdef sock_filter[6] steps
    cdef sock_fprog program
    steps[0] = sock_filter(BPF_LD | BPF_W | BPF_ABS, 0, 0, <uint32_t>(SKF_NET_OFF + IP_SOURCE))
    steps[1] = sock_filter(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, ntohl(own.raw.sin_addr.s_addr))
    steps[2] = sock_filter(BPF_LD | BPF_H | BPF_ABS, 0, 0, 0)           # 0: a UDP filter starts at the UDP header
    steps[3] = sock_filter(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, <uint32_t>port)
    steps[4] = sock_filter(BPF_RET | BPF_K, 0, 0, 0)                    # keep nothing
    steps[5] = sock_filter(BPF_RET | BPF_K, 0, 0, 0xFFFFFFFF)           # keep all of it
    program.len = 6
    program.filter = steps
    if setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0:
        raise OSError(errno, os.strerror(errno))


def size_receive_buffer(sock, int size):
    """Ask for a receive buffer of `size` bytes of datagrams on `sock`; returns what the kernel granted.

    The kernel counts its own overhead too and therefore doubles what is asked for: an answer of `2 * size` is a full
    grant, less means that `net.core.rmem_max` is smaller and this process may not exceed it (CAP_NET_ADMIN may).
    """
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
