/* Calls about internet sockets, each with what it came to: run bare and under the guard, the same must come out.
 * Addresses are of documentation networks (RFC 5737, RFC 3849) or loopback. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MSG_FASTOPEN
#define MSG_FASTOPEN 0x20000000
#endif
typedef struct sockaddr SA;

static void say(const char *what, long result) {
    printf("%s %s\n", what, result < 0 ? strerrorname_np(errno) : result == 0 ? "ok" : "some");
    fflush(stdout);
}
static struct sockaddr_in in4(const char *host, int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &a.sin_addr);
    return a;
}
static struct sockaddr_in6 in6(const char *host, int port) {
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET6, host, &a.sin6_addr);
    return a;
}
static int tcp(void) { return socket(AF_INET, SOCK_STREAM, 0); }
static int udp(void) { return socket(AF_INET, SOCK_DGRAM, 0); }
static int listener(int backlog, struct sockaddr_in *at) {
    int s = tcp();
    socklen_t size = sizeof *at;
    *at = in4("127.0.0.1", 0);
    if (bind(s, (SA *)at, size) || listen(s, backlog) || getsockname(s, (SA *)at, &size)) exit(9);
    return s;
}
static long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* What a program gets wrong, and what it may expect of services of its own. */
static void natives(void) {
    struct sockaddr_in a = in4("192.0.2.1", 80), at;
    struct sockaddr_in6 b = in6("2001:db8::1", 80);
    struct sockaddr_un u = {AF_UNIX, "/nowhere.sock"};
    struct sockaddr unspec = {AF_UNSPEC};
    int s = tcp(), d = udp(), f = open("/dev/null", O_RDWR), un = socket(AF_UNIX, SOCK_STREAM, 0);
    int s6 = socket(AF_INET6, SOCK_STREAM, 0), d6 = socket(AF_INET6, SOCK_DGRAM, 0), one = 1;
    socklen_t size;
    char buffer[64];
    say("no descriptor", connect(99, (SA *)&a, sizeof a));
    say("negative descriptor", connect(-1, (SA *)&a, sizeof a));
    say("no socket", connect(f, (SA *)&a, sizeof a));
    say("null", connect(s, NULL, sizeof a));
    say("bad pointer", connect(s, (SA *)16, sizeof a));
    say("kernel pointer", connect(s, (SA *)-4096L, sizeof a));
    say("no size", connect(s, (SA *)&a, 0));
    say("size 1", connect(s, (SA *)&a, 1));
    say("short", connect(s, (SA *)&a, 15));
    say("huge", connect(s, (SA *)&a, 200));
    say("negative size", connect(s, (SA *)&a, -1));
    say("unix address", connect(s, (SA *)&u, sizeof u));
    say("v6 address", connect(s, (SA *)&b, sizeof b));
    say("v4 address", connect(s6, (SA *)&a, sizeof a));
    say("short v6", connect(s6, (SA *)&b, 20));
    say("inet to a unix socket", connect(un, (SA *)&a, sizeof a));
    say("unix", connect(un, (SA *)&u, sizeof u));
    say("disconnect fresh", connect(s, &unspec, sizeof unspec));
    say("disconnect udp", connect(d, &unspec, sizeof unspec));
    say("udp v6 address", connect(d, (SA *)&b, sizeof b));
    say("udp short", connect(d, (SA *)&a, 10));
    setsockopt(d6, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    say("v6 only, v4 address", connect(d6, (SA *)&a, sizeof a));
    say("v6 only, send to v4", sendto(d6, "x", 1, 0, (SA *)&a, sizeof a));
    size = sizeof at;
    say("peer of none", getpeername(s, (SA *)&at, &size));
    say("peer of udp", getpeername(d, (SA *)&at, &size));
    say("send short", sendto(d, "x", 1, 0, (SA *)&a, 3));
    a.sin_port = 0;
    say("send to port 0", sendto(d, "x", 1, 0, (SA *)&a, sizeof a));
    a.sin_port = htons(80);
    at = in4("127.0.0.1", 9);
    say("send from nowhere", sendto(d, (void *)16, 9, 0, (SA *)&at, sizeof at));
    say("send to nowhere", sendto(d, "x", 1, 0, (SA *)16, sizeof a));
    say("send, huge name", sendto(d, "x", 1, 0, (SA *)&a, 200));
    say("send v6 from v4", sendto(d, "x", 1, 0, (SA *)&b, sizeof b));
    say("sendmsg nowhere", sendmsg(d, (void *)16, 0));
    struct msghdr none = {0};
    say("sendmsg without a name", sendmsg(d, &none, 0));
    say("sendto a stream", sendto(s, "x", 1, MSG_NOSIGNAL, (SA *)&a, sizeof a));
    say("family 99", socket(99, SOCK_STREAM, 0));
    say("flags", socket(AF_INET, SOCK_STREAM | 0x100, 0));

    int server = listener(5, &at);
    say("inner", connect(s, (SA *)&at, sizeof at));
    say("again", connect(s, (SA *)&at, sizeof at));
    struct sockaddr_in peer;
    size = sizeof peer;
    say("peer", getpeername(s, (SA *)&peer, &size) || peer.sin_port != at.sin_port || size != sizeof peer);
    int accepted = accept(server, NULL, NULL);
    say("hear", write(accepted, "hello", 5) == 5 && read(s, buffer, 64) == 5 ? 0 : 1);
    say("peer of an accepted one", getpeername(accepted, (SA *)&peer, &size));
    int quick = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    say("close on exec", fcntl(quick, F_GETFD) != FD_CLOEXEC);
    say("non-blocking", !(fcntl(quick, F_GETFL) & O_NONBLOCK));
    int result = connect(quick, (SA *)&at, sizeof at);
    say("quick", result && errno != EINPROGRESS);
    struct pollfd p = {quick, POLLOUT};
    say("quick is there", poll(&p, 1, -1) != 1);
    say("quick again", connect(quick, (SA *)&at, sizeof at) && errno != EISCONN);
    say("quick once more", connect(quick, (SA *)&at, sizeof at));
    say("still blocking", fcntl(s, F_GETFL) & O_NONBLOCK);
    close(server);

    int in = udp(), out = udp();
    struct sockaddr_in to = in4("127.0.0.1", 0), from;
    size = sizeof to;
    bind(in, (SA *)&to, size);
    getsockname(in, (SA *)&to, &size);
    struct iovec v[2] = {{"ab", 2}, {"cde", 3}}, w[2] = {{buffer, 1}, {buffer + 1, 63}};
    struct msghdr m = {&to, sizeof to, v, 2}, r = {&from, sizeof from, w, 2};
    printf("sendmsg %zd\n", sendmsg(out, &m, 0));
    printf("recvmsg %zd %.5s %u\n", recvmsg(in, &r, 0), buffer, r.msg_namelen);
    struct mmsghdr many[3] = {{m}, {m}, {m}};
    printf("sendmmsg %d", sendmmsg(out, many, 3, 0));
    printf(" %u\n", many[2].msg_len);
    size = sizeof from;
    printf("recvfrom %zd %u\n", recvfrom(in, buffer, 3, MSG_TRUNC, (SA *)&from, &size), size);
    say("udp inner", connect(out, (SA *)&to, sizeof to));
    say("udp peer", getpeername(out, (SA *)&peer, &size) || peer.sin_port != to.sin_port);
    say("udp send", send(out, "x", 1, 0) != 1);
    say("udp disconnect", connect(out, &unspec, sizeof unspec));
    say("udp no peer", getpeername(out, (SA *)&peer, &size));
    if (!socketpair(AF_UNIX, SOCK_DGRAM, 0, many ? (int[2]){0, 0} : NULL)) say("pair", 0);
}

/* A port that a closed socket of ours had is free again. */
static void ports(void) {
    struct sockaddr_in at = in4("127.0.0.1", 0);
    socklen_t size = sizeof at;
    int d = udp();
    say("bind", bind(d, (SA *)&at, size));
    getsockname(d, (SA *)&at, &size);
    close(d);
    d = udp();
    say("bind again", bind(d, (SA *)&at, size));
    int s = tcp();
    at = in4("127.0.0.1", 0);
    bind(s, (SA *)&at, size);
    getsockname(s, (SA *)&at, &size);
    close(s);
    s = tcp();
    say("tcp bind again", bind(s, (SA *)&at, size));
    say("listen", listen(s, 5));
    close(s);
    s = tcp();
    say("listen again", bind(s, (SA *)&at, size) || listen(s, 5));
}

/* The socket of another: made before a fork, passed by a message, under another number. */
static void shared(void) {
    struct sockaddr_in a = in4("203.0.113.1", 22);
    char line[64] = {0};
    int s = tcp(), pair[2], status;
    if (!fork()) _exit(connect(dup2(s, 77), (SA *)&a, sizeof a) ? errno : 0);
    wait(&status);
    say("by a child", WEXITSTATUS(status));
    printf("heard %.10s\n", read(s, line, 63) > 0 ? line : "");
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    if (!fork()) {
        char control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec v = {line, 1};
        struct msghdr m = {NULL, 0, &v, 1, control, sizeof control};
        recvmsg(pair[1], &m, 0);
        int got = *(int *)CMSG_DATA(CMSG_FIRSTHDR(&m));
        _exit(connect(got, (SA *)&a, sizeof a) ? errno : 0);
    }
    int given = tcp();
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {"x", 1};
    struct msghdr m = {NULL, 0, &v, 1, control, sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    *(int *)CMSG_DATA(c) = given;
    say("pass", sendmsg(pair[0], &m, 0) != 1);
    wait(&status);
    say("by whom it was passed to", WEXITSTATUS(status));
}

/* A thread writes another port into the address all the time. argv: rounds at least, the forbidden port. */
static struct sockaddr_in racing;
static volatile int racing_on = 1;
static unsigned short racing_ports[2];
static void *flip(void *_) {
    for (int i = 0; racing_on; i++) *(volatile unsigned short *)&racing.sin_port = racing_ports[i & 1];
    return NULL;
}
static void race(int rounds, int forbidden) {
    struct sockaddr_in at;
    int server = listener(4096, &at), reached = 0, own = 0, i;
    pthread_t thread;
    racing = at;
    racing_ports[0] = at.sin_port, racing_ports[1] = htons(forbidden);
    pthread_create(&thread, NULL, flip, NULL);
    /* As long as it takes until both were meant: the thread may be slow to begin. */
    for (i = 0; i < rounds || !own || own == reached; i++) {
        struct sockaddr_in peer = {0};
        socklen_t size = sizeof peer;
        int s = tcp();
        if (!connect(s, (SA *)&racing, sizeof racing)) reached++;
        if (!getpeername(s, (SA *)&peer, &size) && peer.sin_port == at.sin_port) own++;
        close(s);
        int d = udp();
        struct iovec v = {"x", 1};
        struct msghdr m = {&racing, sizeof racing, &v, 1};
        sendmsg(d, &m, 0);
        sendto(d, "x", 1, 0, (SA *)&racing, sizeof racing);
        close(d);
    }
    racing_on = 0;
    pthread_join(thread, NULL);
    printf("reached %d of %d\n", reached, i);
}

/* Another thread puts an internet socket under a connect that was judged as one to a unix socket. */
static union { struct sockaddr_un u; struct sockaddr_in i; } slipping;
static struct sockaddr_un slip_unix = {AF_UNIX, "/nowhere.sock"};
static struct sockaddr_in slip_inet;
static int slip_sockets[2], slip_at = 50, slip_kind;
static volatile int slip_begun; /* the first call is one of the unix socket, with threads beside it */
static void *slip_under(void *_) {
    while (!slip_begun) {}
    while (racing_on) {
        dup2(slip_sockets[0], slip_at);
        memcpy(&slipping, &slip_unix, sizeof slip_unix);
        for (volatile int i = 0; i < 300; i++);
        memcpy(&slipping, &slip_inet, sizeof slip_inet);
        dup2(slip_sockets[1], slip_at);
        for (volatile int i = 0; i < 300; i++);
    }
    return NULL;
}
/* Control data that names the network card: it counts where the socket is an internet one (IP_PKTINFO). */
static void slip_message(void) {
    char control[CMSG_SPACE(sizeof(struct in_pktinfo))] = {0};
    struct iovec v = {"slipped", 7};
    struct msghdr m = {&slipping, sizeof slip_unix, &v, 1, control, sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = IPPROTO_IP, c->cmsg_type = IP_PKTINFO, c->cmsg_len = CMSG_LEN(sizeof(struct in_pktinfo));
    ((struct in_pktinfo *)CMSG_DATA(c))->ipi_ifindex = if_nametoindex("out");
    sendmsg(slip_at, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}
static void slip(int rounds, const char *host, int port, int kind, int messages) {
    pthread_t thread;
    slip_inet = in4(host, port);
    slip_sockets[0] = socket(AF_UNIX, SOCK_DGRAM, 0);
    slip_sockets[1] = socket(AF_INET, kind | SOCK_NONBLOCK, 0);
    dup2(slip_sockets[0], slip_at);
    memcpy(&slipping, &slip_unix, sizeof slip_unix);
    pthread_create(&thread, NULL, slip_under, NULL);
    for (int i = 0; i < rounds; slip_begun = ++i) {
        if (messages) {
            slip_message();
            continue;
        }
        connect(slip_at, (SA *)&slipping, sizeof slip_unix);
        send(slip_sockets[1], "slipped", 7, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (kind == SOCK_STREAM) {
            close(slip_sockets[1]);
            slip_sockets[1] = socket(AF_INET, kind | SOCK_NONBLOCK, 0);
        }
    }
    racing_on = 0;
    pthread_join(thread, NULL);
}

/* The same with a socket that is just being made: its number is known before the program itself hears of it. */
static int fresh;
static void *slip_fresh_under(void *_) {
    while (!slip_begun) {}
    while (racing_on) {
        dup2(slip_sockets[0], slip_at);
        memcpy(&slipping, &slip_unix, sizeof slip_unix);
        for (volatile int i = 0; i < 300; i++);
        memcpy(&slipping, &slip_inet, sizeof slip_inet);
        for (int i = 0; i < 50 && dup2(fresh, slip_at) < 0; i++);
        for (volatile int i = 0; i < 300; i++);
    }
    return NULL;
}
static void *make_fresh(void *_) {
    while (racing_on) close(udp());
    return NULL;
}
static void slip_fresh(int rounds, const char *host, int port) {
    pthread_t threads[2];
    slip_inet = in4(host, port);
    slip_sockets[0] = socket(AF_UNIX, SOCK_DGRAM, 0);
    dup2(slip_sockets[0], slip_at);
    close(fresh = udp());
    memcpy(&slipping, &slip_unix, sizeof slip_unix);
    pthread_create(&threads[0], NULL, slip_fresh_under, NULL);
    pthread_create(&threads[1], NULL, make_fresh, NULL);
    for (int i = 0; i < rounds; slip_begun = ++i)
        sendto(slip_at, "slipped", 7, MSG_NOSIGNAL | MSG_DONTWAIT, (SA *)&slipping, sizeof slip_unix);
    racing_on = 0;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

static int alarms[2];
static void on_alarm(int _) { write(alarms[1], "!", 1); }
/* Again and again, should the first one come before the call; 0 for no more. */
static void every(int ms, int flags) {
    struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = flags};
    sigaction(SIGALRM, &sa, NULL);
    struct timeval t = {ms / 1000, ms % 1000 * 1000};
    setitimer(ITIMER_REAL, &(struct itimerval){t, t}, NULL);
}
static void until_asleep(int pid) {
    char path[64], line[512], state = 'R';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    while (state != 'S') {
        int f = open(path, O_RDONLY);
        line[read(f, line, sizeof line - 1)] = 0;
        close(f);
        state = strrchr(line, ')')[2];
    }
}

/* Waits on our behalf end as they would by themselves. */
static void waits(void) {
    struct sockaddr_in server = in4("192.0.2.53", 53), from, at;
    socklen_t size = sizeof from;
    char buffer[512];
    int d = udp(), status;
    struct timeval limit = {0, 300000};
    /* Too short to be a question: nobody answers. */
    say("mute", sendto(d, "x", 1, 0, (SA *)&server, sizeof server) != 1);
    say("now", recvfrom(d, buffer, 512, MSG_DONTWAIT, (SA *)&from, &size));
    setsockopt(d, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    long start = now_ms();
    say("until the limit", recvfrom(d, buffer, 512, 0, (SA *)&from, &size));
    say("not before", now_ms() - start < 290);
    limit.tv_usec = 0;
    setsockopt(d, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    pipe2(alarms, O_NONBLOCK);
    every(200, 0);
    say("until a signal", recvfrom(d, buffer, 512, 0, (SA *)&from, &size));
    every(0, 0);
    while (read(alarms[0], buffer, 512) > 0) {}
    if (!fork()) {
        static const char question[] = "\1\2\1\0\0\1\0\0\0\0\0\0\3www\7example\4test\0\0\1\0\1";
        poll(&(struct pollfd){alarms[0], POLLIN}, 1, -1);
        sendto(d, question, sizeof question - 1, 0, (SA *)&server, sizeof server);
        _exit(0);
    }
    every(200, SA_RESTART);
    size = sizeof from;
    long got = recvfrom(d, buffer, 512, 0, (SA *)&from, &size);
    every(0, 0);
    say("past a signal", got <= 0 ? got : 0);
    say("by whom", from.sin_port != htons(53) || from.sin_addr.s_addr != server.sin_addr.s_addr || size != sizeof from);
    wait(&status);
    int pid = fork();
    if (!pid) {
        recvfrom(d, buffer, 512, 0, (SA *)&from, &size);
        _exit(1);
    }
    until_asleep(pid);
    kill(pid, SIGKILL);
    wait(&status); /* nobody answers: without an end */
    say("killed", !WIFSIGNALED(status));

    /* A full queue: the handshake does not end. */
    int full = listener(0, &at), s = 0;
    int filler = tcp();
    connect(filler, (SA *)&at, sizeof at);
    s = tcp();
    limit.tv_usec = 300000;
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    start = now_ms();
    say("connect until the limit", connect(s, (SA *)&at, sizeof at));
    say("not before", now_ms() - start < 290);
    say("and again", connect(s, (SA *)&at, sizeof at));
    s = tcp(); /* not under the timer: a signal would end that call, too, before the listener takes it */
    every(200, 0);
    say("connect until a signal", connect(s, (SA *)&at, sizeof at));
    every(0, 0);
    pid = fork();
    if (!pid) _exit(connect(tcp(), (SA *)&at, sizeof at));
    until_asleep(pid);
    kill(pid, SIGKILL);
    wait(&status); /* by itself it would end with ETIMEDOUT */
    say("connect killed", !WIFSIGNALED(status));
}

/* Sockets that are none of the internet, of a program with threads. */
static int heard_pipe, full_pair[2];
static void on_pipe(int _) { heard_pipe++; }
static void *read_all(void *_) {
    static char sink[65536];
    long sum = 0, n;
    while (sum < 900000 && (n = read(full_pair[1], sink, sizeof sink)) > 0) sum += n;
    return (void *)sum;
}
static void *read_one(void *in) {
    char one;
    read((int)(long)in, &one, 1);
    return NULL;
}
static void *idle(void *_) {
    for (;;) pause();
}
static long pass(int s, int fd, unsigned size, int kind) {
    char control[CMSG_SPACE(sizeof(int) * 3)] = {0};
    struct iovec v = {"x", 1};
    struct msghdr m = {NULL, 0, &v, 1, control, CMSG_SPACE(sizeof(int))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = kind, c->cmsg_len = size;
    *(int *)CMSG_DATA(c) = fd;
    if (kind == SCM_CREDENTIALS) {
        struct ucred mine = {getpid(), getuid(), getgid()};
        memcpy(CMSG_DATA(c), &mine, sizeof mine);
        c->cmsg_len = CMSG_LEN(sizeof mine), m.msg_controllen = CMSG_SPACE(sizeof mine);
    }
    return sendmsg(s, &m, 0);
}
static int passed(int s) {
    char line[4], control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {line, 1};
    struct msghdr m = {NULL, 0, &v, 1, control, sizeof control};
    return recvmsg(s, &m, 0) == 1 && CMSG_FIRSTHDR(&m) ? *(int *)CMSG_DATA(CMSG_FIRSTHDR(&m)) : -1;
}
static void locals(void) {
    struct sockaddr_un here = {AF_UNIX, "here.sock"}, box = {AF_UNIX, "box.sock"}, none = {AF_UNIX, "none.sock"};
    struct sockaddr_un abstract = {AF_UNIX, "\0agentwrap-locals"};
    pthread_t thread;
    int pair[2], pipes[2], got;
    char buffer[64] = {0};
    static char big[300000];
    pthread_create(&thread, NULL, idle, NULL);
    int server = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0), d = socket(AF_UNIX, SOCK_DGRAM, 0);
    say("bind", bind(server, (SA *)&here, sizeof here));
    say("not yet", connect(c, (SA *)&here, sizeof here));
    say("listen", listen(server, 5));
    say("nowhere", connect(c, (SA *)&none, sizeof none));
    say("wrong kind", connect(d, (SA *)&here, sizeof here));
    say("connect", connect(c, (SA *)&here, sizeof here));
    say("again", connect(c, (SA *)&here, sizeof here));
    say("still blocking", fcntl(c, F_GETFL) & O_NONBLOCK);
    int a = accept(server, NULL, NULL), named = socket(AF_UNIX, SOCK_STREAM, 0);
    say("bind abstract", bind(named, (SA *)&abstract, sizeof abstract) || listen(named, 5));
    say("abstract", connect(socket(AF_UNIX, SOCK_STREAM, 0), (SA *)&abstract, sizeof abstract));
    pipe(pipes);
    printf("pass %ld\n", pass(c, pipes[1], CMSG_LEN(sizeof(int)), SCM_RIGHTS));
    got = passed(a);
    say("through it", write(got, "hello", 5) != 5 || read(pipes[0], buffer, 64) != 5);
    say("pass nothing", pass(c, 999, CMSG_LEN(sizeof(int)), SCM_RIGHTS));
    say("bad control", pass(c, 0, 3, SCM_RIGHTS));
    printf("credentials %ld\n", pass(c, 0, 0, SCM_CREDENTIALS));

    int in = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct iovec v[2] = {{"ab", 2}, {"cde", 3}};
    struct msghdr m = {&box, sizeof box, v, 2};
    struct mmsghdr many[2] = {{m}, {m}};
    say("bind box", bind(in, (SA *)&box, sizeof box));
    printf("sendto %zd\n", sendto(d, "x", 1, 0, (SA *)&box, sizeof box));
    printf("sendmsg %zd\n", sendmsg(d, &m, 0));
    printf("sendmmsg %d %u\n", sendmmsg(d, many, 2, 0), many[1].msg_len);
    for (int i = 0; i < 4; i++) printf("datagram %zd\n", read(in, buffer, 64));
    while (sendto(d, "x", 1, MSG_DONTWAIT, (SA *)&box, sizeof box) > 0) {}
    say("full box", sendto(d, "x", 1, MSG_DONTWAIT, (SA *)&box, sizeof box));
    pthread_create(&thread, NULL, read_one, (void *)(long)in);
    printf("into the full box %zd\n", sendto(d, "x", 1, 0, (SA *)&box, sizeof box));
    pthread_join(thread, NULL);
    say("to nobody", sendto(d, "x", 1, 0, (SA *)&none, sizeof none));
    say("too long", sendto(d, big, sizeof big, 0, (SA *)&box, sizeof box));
    say("bad name", sendto(d, "x", 1, 0, (SA *)16, sizeof box));
    say("bad message", sendmsg(d, (void *)16, 0));

    socketpair(AF_UNIX, SOCK_STREAM, 0, full_pair);
    pthread_create(&thread, NULL, read_all, NULL);
    struct iovec three[3] = {{big, 300000}, {big, 300000}, {big, 300000}};
    struct msghdr large = {NULL, 0, three, 3};
    printf("all of it %zd\n", sendmsg(full_pair[0], &large, 0));
    void *sum;
    pthread_join(thread, &sum);
    printf("read %ld\n", (long)sum);
    socketpair(AF_UNIX, SOCK_STREAM, 0, full_pair);
    while (send(full_pair[0], big, 1000, MSG_DONTWAIT) > 0) {}
    say("full", sendmsg(full_pair[0], &large, MSG_DONTWAIT));
    struct timeval limit = {0, 200000};
    setsockopt(full_pair[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    long start = now_ms();
    say("full until the limit", sendmsg(full_pair[0], &large, 0));
    say("not before", now_ms() - start < 190);
    signal(SIGPIPE, on_pipe);
    close(full_pair[1]);
    say("broken", sendmsg(full_pair[0], &large, 0));
    printf("heard %d\n", heard_pipe);
    say("broken, silently", sendmsg(full_pair[0], &large, MSG_NOSIGNAL));
    printf("heard %d\n", heard_pipe);

    struct { struct nlmsghdr head; struct rtgenmsg body; } ask = {{sizeof ask, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 7}};
    struct sockaddr_nl kernel = {AF_NETLINK};
    int links = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    printf("netlink %zd", sendto(links, &ask, sizeof ask, 0, (SA *)&kernel, sizeof kernel));
    printf(" %s\n", recv(links, big, sizeof big, 0) > 0 ? "answered" : "silent");
    struct sockaddr_in at;
    int served = listener(5, &at), s = tcp();
    say("inner", connect(s, (SA *)&at, sizeof at));
    struct msghdr plain = {NULL, 0, v, 2};
    printf("stream %zd", sendmsg(s, &plain, MSG_NOSIGNAL));
    printf(" %zd\n", read(accept(served, NULL, NULL), buffer, 64));
}

/* Names asked for in every way that a resolver has. */
static const char QUESTION[] = "\1\2\1\0\0\1\0\0\0\0\0\0\3www\7example\4test\0\0\1\0\1";
static void names(void) {
    struct sockaddr_in one = in4("192.0.2.53", 53), two = in4("192.0.2.54", 53), from;
    struct sockaddr_in6 six = in6("2001:db8::53", 53), from6;
    char a[2][512], q[2][sizeof QUESTION];
    socklen_t size = sizeof from;
    int d = udp(), c = udp(), e = socket(AF_INET6, SOCK_DGRAM, 0);
    for (int i = 0; i < 2; i++) memcpy(q[i], QUESTION, sizeof QUESTION), q[i][1] = i;
    struct iovec v[2] = {{q[0], sizeof QUESTION - 1}, {q[1], sizeof QUESTION - 1}};
    struct mmsghdr many[2] = {{{&one, sizeof one, &v[0], 1}}, {{&two, sizeof two, &v[1], 1}}};
    printf("sendmmsg %d\n", sendmmsg(d, many, 2, 0));
    struct sockaddr_in senders[2];
    struct iovec w[2] = {{a[0], 512}, {a[1], 512}};
    struct mmsghdr back[2] = {{{&senders[0], sizeof from, &w[0], 1}}, {{&senders[1], sizeof from, &w[1], 1}}};
    int got = 0;
    while (got < 2) {
        int n = recvmmsg(d, back + got, 2 - got, MSG_WAITFORONE, NULL);
        if (n < 0) { say("recvmmsg", n); break; }
        got += n;
    }
    for (int i = 0; i < got; i++) {
        char text[64];
        inet_ntop(AF_INET, &senders[i].sin_addr, text, sizeof text);
        printf("answer %d by %s %u bytes %d\n", a[i][1], text, ntohs(senders[i].sin_port), back[i].msg_len);
    }
    say("connect", connect(c, (SA *)&one, sizeof one));
    say("send", send(c, QUESTION, sizeof QUESTION - 1, 0) <= 0);
    long n = recvfrom(c, a[0], 512, 0, (SA *)&from, &size);
    say("answer", n <= 0 || from.sin_addr.s_addr != one.sin_addr.s_addr || from.sin_port != one.sin_port);
    size = sizeof from;
    say("peer", getpeername(c, (SA *)&from, &size) || from.sin_addr.s_addr != one.sin_addr.s_addr);
    say("send6", sendto(e, QUESTION, sizeof QUESTION - 1, 0, (SA *)&six, sizeof six) <= 0);
    size = sizeof from6;
    n = recvfrom(e, a[0], 512, 0, (SA *)&from6, &size);
    say("answer6", n <= 0 || memcmp(&from6.sin6_addr, &six.sin6_addr, 16) || size != sizeof six);
    say("send mapped", sendto(e, QUESTION, sizeof QUESTION - 1, 0, (SA *)&one, sizeof one) <= 0);
    size = sizeof from6;
    n = recvfrom(e, a[0], 512, 0, (SA *)&from6, &size);
    say("answer mapped", n <= 0 || !IN6_IS_ADDR_V4MAPPED(&from6.sin6_addr) ||
                         memcmp(from6.sin6_addr.s6_addr + 12, &one.sin_addr, 4));
}

/* Ways out that are no connect. */
static void ways(void) {
    struct sockaddr_in a = in4("203.0.113.1", 80), none = in4("192.0.2.9", 4444);
    none.sin_family = AF_UNSPEC; /* to the kernel an AF_INET address all the same (net/ipv4/udp.c) */
    char device[16] = {0};
    socklen_t size = sizeof device;
    int s = tcp(), d = udp();
    struct iovec v = {"x", 1};
    struct msghdr m = {&a, sizeof a, &v, 1};
    say("fast open", sendto(s, "x", 1, MSG_FASTOPEN, (SA *)&a, sizeof a));
    say("fast open by a message", sendmsg(s, &m, MSG_FASTOPEN));
    say("datagram", sendto(d, "x", 1, 0, (SA *)&a, sizeof a));
    say("datagram by a message", sendmsg(d, &m, 0));
    say("datagram to no family", sendto(d, "x", 1, 0, (SA *)&none, sizeof none));
    say("raw", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    say("ping", socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP));
    say("mptcp", socket(AF_INET, SOCK_STREAM, 262));
    say("sctp", socket(AF_INET, SOCK_STREAM, 132));
    say("packet", socket(AF_PACKET, SOCK_RAW, 0));
    say("vsock", socket(40, SOCK_STREAM, 0));
    getsockopt(d, SOL_SOCKET, SO_BINDTODEVICE, device, &size);
    printf("device %s\n", device);
    say("another device", setsockopt(d, SOL_SOCKET, SO_BINDTODEVICE, "", 1));
    say("connected datagrams", connect(d, (SA *)&a, sizeof a));
    say("go", send(d, "x", 1, 0) != 1);
    poll(&(struct pollfd){d}, 1, -1);
    say("nowhere", send(d, "x", 1, 0));
}

/* More sockets than are kept. */
static void many(void) {
    struct sockaddr_in a = in4("203.0.113.1", 22);
    int s[40];
    for (int i = 0; i < 40; i++) s[i] = tcp();
    say("newest", connect(s[39], (SA *)&a, sizeof a));
    say("oldest", connect(s[0], (SA *)&a, sizeof a));
    for (int i = 0; i < 300; i++) close(tcp());
    say("after many", connect(tcp(), (SA *)&a, sizeof a));
}

static void loop(int rounds) {
    struct sockaddr_in a = in4("203.0.113.1", 443);
    int d = udp();
    for (int i = 0; i < rounds; i++)
        if (sendto(d, "x", 1, 0, (SA *)&a, sizeof a) != -1) printf("sent\n");
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *what = argv[1];
    if (!strcmp(what, "natives")) natives();
    else if (!strcmp(what, "ports")) ports();
    else if (!strcmp(what, "shared")) shared();
    else if (!strcmp(what, "race")) race(atoi(argv[2]), atoi(getenv("GUARDED_BYSTANDER")));
    else if (!strcmp(what, "waits")) waits();
    else if (!strcmp(what, "slip")) slip(atoi(argv[2]), argv[3], atoi(getenv("GUARDED_BYSTANDER")), SOCK_DGRAM, 0);
    else if (!strcmp(what, "slip-fresh")) slip_fresh(atoi(argv[2]), argv[3], atoi(getenv("GUARDED_BYSTANDER")));
    else if (!strcmp(what, "slip-message"))
        slip(atoi(argv[2]), argv[3], atoi(getenv("GUARDED_BYSTANDER")), SOCK_DGRAM, 1);
    else if (!strcmp(what, "slip-stream")) slip(atoi(argv[2]), argv[3], atoi(getenv("GUARDED_BYSTANDER")), SOCK_STREAM, 0);
    else if (!strcmp(what, "names")) names();
    else if (!strcmp(what, "locals")) locals();
    else if (!strcmp(what, "ways")) ways();
    else if (!strcmp(what, "many")) many();
    else if (!strcmp(what, "loop")) loop(atoi(argv[2]));
    else if (!strcmp(what, "inherited")) {
        struct sockaddr_in a = in4("203.0.113.1", 22);
        say("inherited", connect(atoi(getenv("GUARDED_INHERIT")), (SA *)&a, sizeof a));
    } else return 2;
    return 0;
}
