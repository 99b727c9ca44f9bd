/* Traffic for the gateway bench: `traffic serve FD`, `traffic HOST PORT SECONDS SHAPE...`, `traffic spin`.

   Shapes: c1 one connection after the other, each with a request of 100 bytes and an answer of 100; c16 the same by 16
   threads; r1 requests on one open connection; down and up bulk in writes of 256 KiB. For each shape the client prints
   a line of JSON: how many a second (connections, requests, bytes), how many failed, and how long one took. Each shape
   has an address of its own, the next after the one before: closed connections to one address keep their ports for a
   minute, and looking for a free one takes ever longer.
   The first byte of a connection tells the server what it is for: 'q' questions, 'd' send to me, 'u' swallow.
*/
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SMALL = 100, BULK = 256 * 1024, MANY = 16, KEPT = 1 << 20 };

static struct sockaddr_in there;
static double until;
static atomic_long done, failed, kept;
static float *took_us;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static int all_in(int fd, char *data, size_t size) {
  size_t have = 0;
  while (have < size) {
    ssize_t n = recv(fd, data + have, size - have, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return -1;
    have += n;
  }
  return 0;
}

static int all_out(int fd, const char *data, size_t size) {
  size_t sent = 0;
  while (sent < size) {
    ssize_t n = send(fd, data + sent, size - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return -1;
    sent += n;
  }
  return 0;
}

static int dial(void) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  if (fd < 0) return -1;
  if (connect(fd, (struct sockaddr *)&there, sizeof there)) return close(fd), -1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

/* Nothing that looks like TLS or HTTP: a gateway hands it on as it is. */
static void question(char *small) {
  memset(small, 0, SMALL);
  small[0] = 'q';
}

static void note(double began) {
  long at = atomic_fetch_add(&kept, 1);
  if (at < KEPT) took_us[at] = (now() - began) * 1e6;
}

static void *connections(void *unused) {
  char small[SMALL];
  while (now() < until) {
    double began = now();
    question(small);
    int fd = dial();
    if (fd < 0 || all_out(fd, small, SMALL) || all_in(fd, small, SMALL)) {
      atomic_fetch_add(&failed, 1);
    } else {
      atomic_fetch_add(&done, 1);
      note(began);
    }
    if (fd >= 0) close(fd);
  }
  return unused;
}

static void questions(void) {
  char small[SMALL];
  int fd = dial();
  question(small);
  if (fd < 0) exit(1);
  while (now() < until) {
    double began = now();
    if (all_out(fd, small, SMALL) || all_in(fd, small, SMALL)) exit(1);
    atomic_fetch_add(&done, 1);
    note(began);
  }
  close(fd);
}

static void bulk(int up) {
  char *data = calloc(1, BULK);
  int fd = dial();
  data[0] = up ? 'u' : 'd';
  if (fd < 0 || all_out(fd, data, up ? BULK : 2)) exit(1);
  while (now() < until) {
    ssize_t n = up ? send(fd, data, BULK, MSG_NOSIGNAL) : recv(fd, data, BULK, 0);
    if (n <= 0) exit(1);
    atomic_fetch_add(&done, n);
  }
  if (up) { /* what is still under way does not count as carried before the server has it */
    shutdown(fd, SHUT_WR);
    if (recv(fd, data, 1, 0) < 0) exit(1);
  }
  close(fd);
}

static void *serve_one(void *given) {
  int fd = (int)(long)given, one = 1;
  char small[SMALL], *data = NULL;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (recv(fd, small, 1, MSG_PEEK) == 1) {
    if (small[0] == 'q') {
      while (!all_in(fd, small, SMALL) && !all_out(fd, small, SMALL)) {}
    } else {
      data = calloc(1, BULK);
      if (small[0] == 'd') while (!all_out(fd, data, BULK)) {}
      else while (recv(fd, data, BULK, 0) > 0) {}
      free(data);
    }
  }
  close(fd);
  return NULL;
}

static void serve(int listener) {
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&small, 64 * 1024);
  for (;;) {
    pthread_t thread;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) continue;
    if (pthread_create(&thread, &small, serve_one, (void *)(long)fd)) close(fd);
  }
}

static int ascending(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return x < y ? -1 : x > y;
}

static void measure(const char *shape, double seconds) {
  done = failed = kept = 0;
  double began = now();
  until = began + seconds;
  if (!strcmp(shape, "c1")) {
    connections(NULL);
  } else if (!strcmp(shape, "c16")) {
    pthread_t threads[MANY];
    for (int n = 0; n < MANY; n++) pthread_create(&threads[n], NULL, connections, NULL);
    for (int n = 0; n < MANY; n++) pthread_join(threads[n], NULL);
  } else if (!strcmp(shape, "r1")) {
    questions();
  } else {
    bulk(!strcmp(shape, "up"));
  }
  double elapsed = now() - began;
  long have = kept < KEPT ? kept : KEPT;
  qsort(took_us, have, sizeof *took_us, ascending);
  printf("{\"shape\": \"%s\", \"done\": %ld, \"per_second\": %.1f, \"failed\": %ld, ", shape, (long)done, done / elapsed,
         (long)failed);
  printf("\"p50_us\": %.1f, \"p99_us\": %.1f}\n", have ? took_us[have / 2] : 0.0, have ? took_us[have * 99 / 100] : 0.0);
  fflush(stdout);
}

int main(int count, char **word) {
  signal(SIGPIPE, SIG_IGN);
  if (count == 2 && !strcmp(word[1], "spin")) { /* keeps a processor from halting, and gives way to everybody */
    struct sched_param none = {0};
    sched_setscheduler(0, SCHED_IDLE, &none);
    for (volatile unsigned long n = 0;; n++) {}
  }
  if (count == 3 && !strcmp(word[1], "serve")) serve(atoi(word[2]));
  if (count < 5) return 2;
  there.sin_family = AF_INET;
  there.sin_port = htons(atoi(word[2]));
  if (inet_pton(AF_INET, word[1], &there.sin_addr) != 1) return 2;
  took_us = malloc(KEPT * sizeof *took_us);
  for (int n = 4; n < count; n++) {
    measure(word[n], atof(word[3]));
    there.sin_addr.s_addr = htonl(ntohl(there.sin_addr.s_addr) + 1);
  }
  return 0;
}
