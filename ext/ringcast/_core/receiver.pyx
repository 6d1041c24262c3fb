"""Receiver: read many datagrams per system call (recvmmsg), without the GIL.

It reads a set of UDP sockets into memory that it allocates once, and returns read-only
views of that memory, which are valid until the next call. What a remote peer or the
network causes (truncated datagrams, ICMP errors) is counted and never raised. What only
this program can cause (a closed descriptor) is raised.

A socket with IP_RECVERR has a queue of errors: for each ICMP message the address to
which the datagram went. The receiver reads that, too, and keeps the addresses where no
socket takes datagrams any more.
"""

import os
import socket

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.errno cimport EAGAIN, EBADF, ECONNREFUSED, EINTR, ENOTSOCK, errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset
from posix.stdlib cimport posix_memalign
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close as close_descriptor

from ringcast._core.linux cimport (
    CMSG_DATA, CMSG_FIRSTHDR, CMSG_NXTHDR, EFD_CLOEXEC, EFD_NONBLOCK, IP_RECVERR, IPPROTO_IP,
    MSG_DONTWAIT, MSG_ERRQUEUE, MSG_TRUNC, POLLIN, SO_EE_ORIGIN_ICMP, cmsghdr, eventfd,
    eventfd_read, eventfd_write, iovec, mmsghdr, msghdr, ntohs, pollfd, ppoll, recvmmsg, recvmsg,
    sched_yield, sock_extended_err, sockaddr_in,
)

from ringcast._core.spinning cimport Spin, begin_wait, end_sleep, end_spin

cdef extern from *:
    """
    #define FOR_EVER (-1)
    #define LONGEST_WAIT (INT64_C(1) << 62)     /* ns; now plus this cannot overflow */
    """
    const int64_t FOR_EVER
    const int64_t LONGEST_WAIT

cdef enum:
    ERRORS_PER_READ = 64            # errors of one socket in a row, then the next socket is read
    READS_PER_CHECK = 16            # with datagrams, between two looks at the queues of errors
    MOST_REFUSALS = 64              # addresses that are kept until somebody asks for them
    ERROR_SPACE = 256               # bytes of what the kernel says about one error
    MOST_SLOTS = 1024               # what one recvmmsg() takes (UIO_MAXIOV)
    LARGEST_SLOT = 65536
    AT_ONCE = 8                     # datagrams that one recvmmsg() takes
    ENOUGH = 1 << 17                # bytes of one socket, after which nothing more is read


cdef struct Intake:                 # only the receiving thread writes it, with or without the GIL
    unsigned int sockets
    unsigned int slots              # of each socket; those of socket i begin at headers[i * slots]
    pollfd *polls                   # the sockets, then the eventfd
    int *counts                     # datagrams that the last read put into each socket's slots
    mmsghdr *headers
    iovec *places
    bint emptied                    # the last reads left nothing of what had arrived
    uint64_t errors                 # errors read from sockets since the last call
    unsigned int unchecked          # calls since the last look at the queues of errors
    unsigned int refusals           # addresses in `refused`
    sockaddr_in *refused            # where a datagram came to no socket
    Spin spin                       # whether a wait spins first


cdef int read_socket(Intake *intake, unsigned int which) noexcept nogil:
    """Read one socket without waiting, until it is empty, its slots are full, or what
    came would not stay in the caches until it is used.

    Returns the number of datagrams, or -errno if it is not an open socket.
    """
    cdef mmsghdr *first = intake.headers + which * intake.slots
    cdef unsigned int taken = 0, wanted, nbytes = 0, index
    cdef int count
    while taken < intake.slots and nbytes < ENOUGH:
        wanted = min(<unsigned int>AT_ONCE, intake.slots - taken)
        count = read_some(intake, which, first + taken, wanted)
        if count < 0:
            return count
        for index in range(taken, taken + <unsigned int>count):
            nbytes += first[index].msg_len
        taken += <unsigned int>count
        if <unsigned int>count < wanted:
            return <int>taken
    intake.emptied = False
    return <int>taken


cdef int read_some(Intake *intake, unsigned int which, mmsghdr *first,
                   unsigned int wanted) noexcept nogil:
    """Read some datagrams of one socket. Returns as read_socket()."""
    cdef int count, attempts = ERRORS_PER_READ
    while attempts > 0:
        attempts -= 1
        count = recvmmsg(intake.polls[which].fd, first, wanted, MSG_DONTWAIT, NULL)
        if count >= 0:
            return count
        if errno == EAGAIN:
            return 0
        if errno == EBADF or errno == ENOTSOCK:
            return -errno
        if errno != EINTR:          # an ICMP error; the read has cleared it
            intake.errors += <uint64_t>max(read_errors(intake, which), 1)
    return 0


cdef int read_errors(Intake *intake, unsigned int which) noexcept nogil:
    """Read the queue of errors of one socket, and keep the addresses that refused a
    datagram. Returns the number of errors."""
    cdef int count = 0
    cdef msghdr header
    cdef sockaddr_in dest
    cdef unsigned char[ERROR_SPACE] control
    while count < ERRORS_PER_READ:
        memset(&header, 0, sizeof(header))
        header.msg_name, header.msg_namelen = &dest, sizeof(dest)
        header.msg_control, header.msg_controllen = control, ERROR_SPACE
        if recvmsg(intake.polls[which].fd, &header, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0:
            count += 1
            if is_refusal(&header):
                keep_refusal(intake, &dest)
        elif errno != EINTR:
            break
    return count


cdef bint is_refusal(msghdr *header) noexcept nogil:
    """Return whether an error says that no socket has the port (ICMP port
    unreachable)."""
    cdef cmsghdr *message = CMSG_FIRSTHDR(header)
    cdef sock_extended_err *error
    while message != NULL:
        if message.cmsg_level == IPPROTO_IP and message.cmsg_type == IP_RECVERR:
            error = <sock_extended_err *>CMSG_DATA(message)
            return error.ee_origin == SO_EE_ORIGIN_ICMP and error.ee_errno == ECONNREFUSED
        message = CMSG_NXTHDR(header, message)
    return False


cdef void keep_refusal(Intake *intake, const sockaddr_in *dest) noexcept nogil:
    """Keep an address, once. If there are too many, the next datagram tells again."""
    cdef unsigned int index
    for index in range(intake.refusals):
        if (intake.refused[index].sin_port == dest.sin_port
                and intake.refused[index].sin_addr.s_addr == dest.sin_addr.s_addr):
            return
    if intake.refusals < MOST_REFUSALS:
        intake.refused[intake.refusals] = dest[0]
        intake.refusals += 1


cdef void read_all_errors(Intake *intake) noexcept nogil:
    """Read the queues of errors. A sender on another thread may have taken the sign
    that there is something in them."""
    cdef unsigned int which
    intake.unchecked = 0
    for which in range(intake.sockets):
        intake.errors += <uint64_t>read_errors(intake, which)


cdef int read_all(Intake *intake, bint ready_only=False) noexcept nogil:
    """Read every socket once; with `ready_only` those where ppoll() saw something.
    Returns the number of all datagrams, or -errno."""
    cdef int total = 0, count
    cdef unsigned int which
    intake.emptied = True
    for which in range(intake.sockets):
        count = 0
        if not ready_only or intake.polls[which].revents:
            count = read_socket(intake, which)
        if count < 0:
            return count
        intake.counts[which] = count
        total += count
    return total


cdef int collect(Intake *intake, int64_t wait_ns) noexcept nogil:
    """Read; if nothing was there, wait once and read again.

    Returns the number of datagrams, or -errno. An error of a socket also ends the call,
    whether it came before the wait or ended it.
    """
    cdef int count = read_all(intake)
    if count == 0 and wait_ns != 0 and not intake.errors:
        count = wait_and_read_all(intake, wait_ns)
    intake.unchecked += 1
    if count == 0 or intake.unchecked >= READS_PER_CHECK:
        read_all_errors(intake)
    return count


cdef int wait_and_read_all(Intake *intake, int64_t wait_ns) noexcept nogil:
    """Wait until something is there, at most so long, and read. Returns as
    collect()."""
    cdef timespec timeout
    cdef int64_t most = intake.spin.most_ns
    cdef int64_t began = monotonic_ns() if most else 0
    cdef int count
    if begin_wait(&intake.spin):
        count = spin(intake, began + (most if wait_ns == FOR_EVER else min(most, wait_ns)))
        end_spin(&intake.spin, count != 0 or intake.errors)
        if count != 0 or intake.errors:
            return count
    timeout.tv_sec = <long>(wait_ns // 1000000000)
    timeout.tv_nsec = <long>(wait_ns % 1000000000)
    count = ppoll(intake.polls, intake.sockets + 1,
                  NULL if wait_ns == FOR_EVER else &timeout, NULL)
    if count < 0:
        return -errno
    count = read_all(intake, True)
    if most:
        end_sleep(&intake.spin, monotonic_ns() - began, count > 0)
    return count


cdef int spin(Intake *intake, int64_t until) noexcept nogil:
    """Read again and again until this time. Returns 0 if nothing came."""
    cdef int count = 0
    while count == 0 and not intake.errors and monotonic_ns() < until:
        count = read_all(intake)
        if count == 0:
            sched_yield()           # the thread that will answer may need this core
    return count


cdef int64_t monotonic_ns() noexcept nogil:
    """Return the time of the monotonic clock."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef int64_t wait_of(object timeout_ns) except? -2:
    """Return how long to wait: None is for ever, a time that has passed is 0."""
    if timeout_ns is None:
        return FOR_EVER
    cdef int64_t wait = timeout_ns
    return min(max(wait, 0), LONGEST_WAIT)


cdef class _Slab:
    """Page-aligned memory for the slots. Every view holds a reference to it."""

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
    """A reader of UDP sockets: many datagrams per system call, into slots made once.

    Args:
        fds: descriptors of the sockets, 1..1024. They stay the caller's: keep them open
            while `receive` runs, close them afterwards.
        slots: the most datagrams that one call takes from each socket, 1..1024. It
            takes fewer of large ones: some 128 KB. Beyond that their memory leaves the
            processor's cache before it is read. Of 2 .. 64 at a time, 4 and 8 were
            fastest with 60 KB (16 some 8 percent slower), 16 and more with 100 B.
        datagram_size: bytes of one slot, 1..65536. A longer datagram is dropped and
            counted in `truncated`.

    Raises ValueError outside these limits, OSError if the kernel gives no eventfd,
    MemoryError without room for `slots * datagram_size` bytes per socket.

    *Threads.* One thread at a time is inside `receive` (a second gets RuntimeError);
    the same thread calls `refused`.
    Any thread may call `wake` and `close` and read the counters. The flags `receiving`
    and `woken` change only with the GIL held, or in a Python without it in a critical
    section of this object. The counters are the receiving thread's: `receive` counts
    without the GIL in the intake, and adds that to the counters when it has the GIL
    again.
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
    cdef readonly bint emptied      # the last receive() left nothing of what had arrived

    def __cinit__(self, fds, int slots=64, int datagram_size=65536):
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
        """Allocate the arrays of the intake."""
        cdef Intake *intake = &self.intake
        cdef size_t total = intake.sockets * intake.slots
        intake.polls = <pollfd *>PyMem_Calloc(intake.sockets + 1, sizeof(pollfd))
        intake.counts = <int *>PyMem_Calloc(intake.sockets, sizeof(int))
        intake.headers = <mmsghdr *>PyMem_Calloc(total, sizeof(mmsghdr))
        intake.places = <iovec *>PyMem_Calloc(total, sizeof(iovec))
        intake.refused = <sockaddr_in *>PyMem_Calloc(MOST_REFUSALS, sizeof(sockaddr_in))
        if not (intake.polls and intake.counts and intake.headers and intake.places
                and intake.refused):
            raise MemoryError("no room for the headers of the receive slots")
        return 0

    cdef int lay_out(self, int datagram_size) except -1:
        """Give each header its slot. A slot begins on a page."""
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
        """Make the eventfd, and list what ppoll() waits for."""
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
        PyMem_Free(self.intake.refused)

    def receive(self, timeout_ns=None, int64_t spin_ns=0):
        """Return the datagrams that have arrived; wait for some if there are none.

        A wait may spin for `spin_ns` nanoseconds before it sleeps (spinning.pyx).

        `timeout_ns` None waits for ever, 0 (or less) not at all. The answer is empty
        when the time has passed, after a `wake`, and also early if all that came was
        truncated or an ICMP error. The order is that of the sockets given, and of
        arrival in each.

        The views are read-only and **valid until the next call**, which overwrites
        their memory (copy what must live longer). To read an outdated view is safe but
        shows other bytes.

        Raises OSError if a descriptor is not an open socket, RuntimeError if another
        thread is inside, ValueError after `close`, and whatever a Python signal handler
        raises (KeyboardInterrupt) during the wait.
        """
        cdef int64_t wait = wait_of(timeout_ns)
        self.enter()
        self.intake.spin.most_ns = max(0, spin_ns)
        try:
            return self.take(self.wait_and_read(wait))
        finally:
            self.leave()

    @cython.critical_section
    cdef int enter(self) except -1:
        """Take the place of the one thread inside receive(), or raise."""
        if self.closed:
            raise ValueError("this receiver is closed")
        if self.receiving:
            raise RuntimeError("another thread is already inside receive(); "
                               "one receiver has one reading thread")
        self.receiving = True
        return 0

    cdef int wait_and_read(self, int64_t wait) except -1:
        """Wait and read without the GIL.

        A signal ends the wait: then the Python handlers run, and the wait goes on.
        """
        cdef int64_t deadline = monotonic_ns() + wait
        cdef int count = -EINTR
        while count == -EINTR:
            PyErr_CheckSignals()
            if self.is_woken():
                wait = 0
            elif wait != FOR_EVER:
                wait = max(deadline - monotonic_ns(), 0)
            with nogil:
                count = collect(&self.intake, wait)
        if count < 0:
            raise OSError(-count, os.strerror(-count))
        return count

    @cython.critical_section
    cdef bint is_woken(self) noexcept:
        return self.woken

    cdef list take(self, int count):
        """Make views of what the last read put into the slots, and count it."""
        cdef list datagrams = []
        cdef size_t which, first, slot
        cdef mmsghdr *header
        self.emptied = self.intake.emptied
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

    @cython.critical_section
    cdef void leave(self) noexcept:
        """Leave receive(): answer every wake() so far, and empty the eventfd."""
        cdef uint64_t wakes = 0
        if self.woken:
            eventfd_read(self.event, &wakes)
        self.woken = self.receiving = False
        self.calls += 1
        self.errors += self.intake.errors
        self.intake.errors = 0

    def refused(self):
        """Return where no socket takes datagrams, as pairs of host and port.

        These are the addresses to which datagrams were sent and for which `receive` has
        read an ICMP port unreachable since the last call, at most 64. Anybody can forge
        such a message. Only a socket with IP_RECVERR tells them.

        Raises RuntimeError while a thread is inside `receive`.
        """
        cdef sockaddr_in *dest
        cdef unsigned int index
        cdef list found = []
        if self.receiving:
            raise RuntimeError("receive() is running; call refused() from the thread that calls it")
        for index in range(self.intake.refusals):
            dest = &self.intake.refused[index]
            found.append((socket.inet_ntoa((<char *>&dest.sin_addr)[:sizeof(dest.sin_addr)]),
                          ntohs(dest.sin_port)))
        self.intake.refusals = 0
        return found

    @cython.critical_section
    def wake(self):
        """Make `receive` return at once: the call that waits now, else the next one.

        Several wakes before it returns count as one. Any thread may call this, and
        signal handlers written in Python. Does nothing after `close`.
        """
        if self.woken or self.closed:
            return
        self.woken = True
        if self.receiving:
            eventfd_write(self.event, 1)

    @cython.critical_section
    def close(self):
        """Give the eventfd back. A second call does nothing.

        The sockets stay open: they are the caller's. Raises RuntimeError while a thread
        is inside `receive`: `wake` it first.
        """
        if self.receiving:
            raise RuntimeError("receive() is running; wake it and let it return before close()")
        if not self.closed:
            self.closed = True
            close_descriptor(self.event)
            self.event = -1

    def forget(self):
        """Give the eventfd back in a forked child.

        No thread is inside `receive` there, whatever `receiving` says.
        """
        self.receiving = False
        self.close()
