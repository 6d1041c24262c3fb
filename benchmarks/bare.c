/* The limit: messages over UDP multicast on loopback, with as little as a program can do
 * beside the system calls. benchmarks/bare.py compiles it and runs it beside ringcast.
 *
 *     bare receive GROUP PORT
 *     bare send GROUP PORT RECEIVERS SIZE SECONDS
 *
 * The sender copies each message into a datagram of 60,000 bytes and hands several
 * datagrams to a call of sendmmsg(). A receiver takes several with recvmmsg() and copies
 * each message out, into memory that it uses again. After every few datagrams it tells
 * the sender how many it has: the sender has at most WINDOW on their way, so no buffer
 * overflows, and nothing is ever repeated. A gap ends the receiver: its figure would be
 * worth nothing. There are no checks of bytes, no members, one size, one thread.
 *
 * When it is ready each process prints a line, and the sender waits for one on its
 * standard input. At the end each receiver prints how many messages it had in a second.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    DATAGRAM = 60000,
    BURST = 8,                  /* datagrams of a system call */
    WINDOW = 32,                /* datagrams on their way: 2 MB, half of a usual buffer */
    ACK_EVERY = 4,              /* datagrams */
    BUFFER = 4 << 20,
    MESSAGES = 61,              /* different ones, which are sent in turn */
    KEPT = 1024,                /* places for messages at the receiver */
    MOST_RECEIVERS = 16,
};

struct head {
    uint64_t number;            /* of the datagram, from 0 on */
    uint32_t count;             /* of messages; 0: the end */
    uint32_t size;              /* of each */
};

static uint8_t frames[BURST][DATAGRAM];
static struct iovec places[BURST];
static struct mmsghdr headers[BURST];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int make_socket(void)
{
    int one = 1, size = BUFFER, made = socket(AF_INET, SOCK_DGRAM, 0);
    struct in_addr loopback = {htonl(INADDR_LOOPBACK)};
    if (made < 0
            || setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one)
            || setsockopt(made, SOL_SOCKET, SO_RCVBUF, &size, sizeof size)
            || setsockopt(made, SOL_SOCKET, SO_SNDBUF, &size, sizeof size)
            || setsockopt(made, IPPROTO_IP, IP_MULTICAST_IF, &loopback, sizeof loopback))
        fail("socket");
    return made;
}

static void lay_out(struct sockaddr_in *peer)
{
    for (int k = 0; k < BURST; k++) {
        places[k] = (struct iovec){frames[k], DATAGRAM};
        headers[k].msg_hdr.msg_iov = &places[k];
        headers[k].msg_hdr.msg_iovlen = 1;
        headers[k].msg_hdr.msg_name = peer;
        headers[k].msg_hdr.msg_namelen = sizeof *peer;
    }
}

static void receive(struct sockaddr_in group)
{
    int data = make_socket(), acks = make_socket();
    struct ip_mreq member = {group.sin_addr, {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in sender;
    struct head head;
    uint64_t expected = 0, messages = 0, told = 0;
    uint8_t *kept = malloc((size_t)KEPT * DATAGRAM);
    double began = 0;
    if (bind(data, (struct sockaddr *)&group, sizeof group)
            || setsockopt(data, IPPROTO_IP, IP_ADD_MEMBERSHIP, &member, sizeof member))
        fail("bind");
    lay_out(&sender);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int count = recvmmsg(data, headers, BURST, MSG_WAITFORONE, NULL);
        if (count < 0)
            fail("recvmmsg");
        if (!began)
            began = now();
        for (int k = 0; k < count; k++) {
            const uint8_t *from = frames[k] + sizeof head;
            memcpy(&head, frames[k], sizeof head);
            if (head.number != expected++) {
                fprintf(stderr, "datagram %lu came as number %lu\n", head.number, expected - 1);
                exit(1);
            }
            for (uint32_t m = 0; m < head.count; m++, messages++, from += head.size)
                memcpy(kept + messages % KEPT * head.size, from, head.size);
            if (expected - told >= ACK_EVERY || !head.count) {
                told = expected;
                sendto(acks, &told, sizeof told, 0, (struct sockaddr *)&sender, sizeof sender);
            }
            if (!head.count) {
                printf("%.0f\n", messages / (now() - began));
                return;
            }
        }
    }
}

/* Wait until all have so many datagrams. */
static void await(int port, int receivers, uint64_t goal)
{
    static struct { struct sockaddr_in from; uint64_t has; } known[MOST_RECEIVERS];
    for (;;) {
        int ahead = 0, k = 0;
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        uint64_t has;
        for (k = 0; k < receivers; k++)
            ahead += known[k].has >= goal;
        if (ahead == receivers)
            return;
        if (recvfrom(port, &has, sizeof has, 0, (struct sockaddr *)&from, &length) < 0)
            fail("recvfrom");
        for (k = 0; k < receivers; k++)
            if (!known[k].has || known[k].from.sin_port == from.sin_port)
                break;
        if (k < receivers) {
            known[k].from = from;
            known[k].has = has;
        }
    }
}

static void send_all(struct sockaddr_in group, int receivers, uint32_t size, double seconds)
{
    int port = make_socket();
    uint32_t most = (DATAGRAM - sizeof(struct head)) / size;
    uint64_t number = 0, message = 0;
    uint8_t *pool = malloc((size_t)MESSAGES * size);
    double end = 0;
    for (size_t k = 0; k < (size_t)MESSAGES * size; k++)
        pool[k] = rand();
    lay_out(&group);
    puts("ready");
    fflush(stdout);
    getchar();
    for (int is_over = 0; !is_over;) {
        int burst = 0;
        if (!end)
            end = now() + seconds;
        is_over = now() >= end;
        for (burst = 0; burst < (is_over ? 1 : BURST); burst++, number++) {
            struct head head = {number, is_over ? 0 : most, size};
            uint8_t *to = frames[burst] + sizeof head;
            memcpy(frames[burst], &head, sizeof head);
            for (uint32_t m = 0; m < head.count; m++, message++, to += size)
                memcpy(to, pool + message % MESSAGES * size, size);
            places[burst].iov_len = (size_t)(to - frames[burst]);
        }
        if (number > WINDOW)
            await(port, receivers, number - WINDOW);
        for (int sent = 0, count; sent < burst; sent += count)
            if ((count = sendmmsg(port, headers + sent, burst - sent, 0)) < 0)
                fail("sendmmsg");
    }
    await(port, receivers, number);
}

int main(int count, char **words)
{
    struct sockaddr_in group = {.sin_family = AF_INET};
    alarm(60);
    if (count < 4 || inet_pton(AF_INET, words[2], &group.sin_addr) != 1)
        return 2;
    group.sin_port = htons(atoi(words[3]));
    if (!strcmp(words[1], "receive"))
        receive(group);
    else if (count == 7 && atoi(words[4]) <= MOST_RECEIVERS)
        send_all(group, atoi(words[4]), (uint32_t)atoi(words[5]), atof(words[6]));
    else
        return 2;
    return 0;
}
