"""The parts of Linux that sockets.pyx, receiver.pyx, sender.pyx and standby.pyx use.

Cython's own declarations do not have them.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from posix.time cimport timespec

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN
    int ppoll(pollfd *fds, unsigned long count, const timespec *timeout, const void *sigmask)

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_condattr_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *mutex, const void *attributes)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_condattr_init(pthread_condattr_t *attributes)
    int pthread_condattr_setclock(pthread_condattr_t *attributes, int clock)
    int pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes)
    int pthread_cond_signal(pthread_cond_t *condition)
    int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
    int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                               const timespec *until)

cdef extern from "<sched.h>" nogil:
    int sched_yield()

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
    int MSG_ERRQUEUE
    int MSG_NOSIGNAL
    int MSG_TRUNC
    int SOL_SOCKET
    int SO_ATTACH_FILTER
    int SO_RCVBUFFORCE
    ssize_t recvmsg(int fd, msghdr *header, int flags)
    int recvmmsg(int fd, mmsghdr *headers, unsigned int count, int flags, timespec *timeout)
    int sendmmsg(int fd, mmsghdr *headers, unsigned int count, int flags)
    int setsockopt(int fd, int level, int option, const void *value, unsigned int size)
    cmsghdr *CMSG_FIRSTHDR(msghdr *header)
    cmsghdr *CMSG_NXTHDR(msghdr *header, cmsghdr *message)

cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        uint32_t s_addr
    struct sockaddr_in:
        unsigned short sin_family
        uint16_t sin_port
        in_addr sin_addr
    int AF_INET
    int IPPROTO_IP
    int IP_RECVERR
    uint16_t htons(uint16_t value)
    uint32_t ntohl(uint32_t value)
    uint16_t ntohs(uint16_t value)

cdef extern from *:
    """
    #include <time.h>                   /* <linux/errqueue.h> does not include what it needs */
    #include <linux/errqueue.h>
    """
    struct sock_extended_err:
        uint32_t ee_errno
        uint8_t ee_origin
    int SO_EE_ORIGIN_ICMP

cdef extern from "<linux/filter.h>" nogil:
    struct sock_filter:
        uint16_t code
        unsigned char jt
        unsigned char jf
        uint32_t k
    struct sock_fprog:
        unsigned short len
        sock_filter *filter
    uint16_t BPF_LD, BPF_W, BPF_H, BPF_B, BPF_LEN, BPF_ABS, BPF_JMP, BPF_JEQ, BPF_JGE, BPF_K
    uint16_t BPF_RET
    int SKF_NET_OFF

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
