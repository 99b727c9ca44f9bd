/* Every way to make a process or to become another program, and what waiting, stopping and signals must still look like.
 *
 * births NAME...      runs each scenario in ./NAME as a process that is known by its arguments (births : NAME);
 *                     prints "NAME ok" or what went wrong. A scenario makes folders, so that it is known who ran.
 * births mark LABEL   makes the folder LABEL: the program that others become.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char self[4096];
static char *const mark[] = {"births", "mark", "child", NULL};
#define CHECK(condition) do { if (!(condition)) { printf("line %d: errno %d: ", __LINE__, errno); return 1; } } while (0)
#define SCENARIO(name) static int name(void)

static int made(const char *label) { return mkdir(label, 0755); }
static int ended(pid_t pid, int options) { int s; return waitpid(pid, &s, options) == pid && WIFEXITED(s) ? WEXITSTATUS(s) : -1; }
static int say(void *label) { made(label); return 7; }
static char stacks[8][65536] __attribute__((aligned(16)));
static void *top(int i) { return stacks[i] + sizeof stacks[i]; }

SCENARIO(by_fork) { pid_t p = fork(); if (!p) _exit(made("child") ? 1 : 7); CHECK(ended(p, 0) == 7); return 0; }
SCENARIO(by_vfork) { pid_t p = vfork(); if (!p) { execve(self, mark, environ); _exit(99); } CHECK(ended(p, 0) == 0); return 0; }
SCENARIO(failed_exec) {
    pid_t p = vfork(); if (!p) { execve("/nonexistent", mark, environ); _exit(7); }
    CHECK(ended(p, 0) == 7); return 0;
}
SCENARIO(raw_clone) { pid_t p = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); if (!p) _exit(say("child")); CHECK(ended(p, 0) == 7); return 0; }
SCENARIO(shared_memory) { pid_t p = clone(say, top(0), CLONE_VM | CLONE_FS | SIGCHLD, "child"); CHECK(ended(p, 0) == 7); return 0; }
SCENARIO(silent_clone) { pid_t p = clone(say, top(0), 0, "child"); CHECK(ended(p, __WALL) == 7); return 0; }
SCENARIO(sibling) {
    int q[2]; char c; CHECK(!pipe(q));
    pid_t p = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
    if (!p) { say("child"); _exit(7); }
    CHECK(p > 0); close(q[1]); CHECK(read(q[0], &c, 1) == 0); return 0;
}
SCENARIO(clone3_is_refused) {
    struct clone_args a = {.exit_signal = SIGCHLD};
    long p = syscall(SYS_clone3, &a, sizeof a); if (!p) _exit(0);
    CHECK(p < 0 && errno == ENOSYS); return 0;
}
SCENARIO(untraced) {
    long p = syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0); if (!p) _exit(say("child"));
    CHECK(p < 0 && errno == EPERM); return 0;
}
SCENARIO(spawned) { pid_t p; CHECK(!posix_spawn(&p, self, NULL, NULL, mark, environ)); CHECK(ended(p, 0) == 0); return 0; }

static void *thread_says(void *label) { made(label); return NULL; }
SCENARIO(threads) {
    pthread_t t[5]; char labels[5][3];
    for (int i = 0; i < 5; i++) { sprintf(labels[i], "t%d", i); CHECK(!pthread_create(&t[i], NULL, thread_says, labels[i])); }
    for (int i = 0; i < 5; i++) pthread_join(t[i], NULL);
    return 0;
}
static volatile int finished;
static int says_and_finishes(void *label) { made(label); finished++; return 0; }
SCENARIO(threads_in_disguise) { /* threads whose flags make the kernel announce a fork and a vfork */
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    CHECK(clone(says_and_finishes, top(0), flags | SIGCHLD, "t0") > 0);
    while (finished < 1) sched_yield();
    CHECK(clone(says_and_finishes, top(1), flags | CLONE_VFORK, "t1") > 0);
    CHECK(finished == 2); return 0;
}
static void *becomes(void *unused) { execve(self, mark, environ); return NULL; }
static void *waits(void *unused) { pause(); return NULL; }
SCENARIO(exec_by_a_thread) {
    pthread_t t; for (int i = 0; i < 3; i++) CHECK(!pthread_create(&t, NULL, waits, NULL));
    CHECK(!pthread_create(&t, NULL, becomes, NULL)); pause(); return 1;
}
static void *goes_on(void *leader) { pthread_join(*(pthread_t *)leader, NULL); made("child"); return NULL; }
SCENARIO(leader_ends_first) {
    static pthread_t leader; pthread_t t; leader = pthread_self();
    CHECK(!pthread_create(&t, NULL, goes_on, &leader)); fflush(stdout); pthread_exit(NULL);
}
SCENARIO(exec_at_folder) {
    int at = open("/", O_PATH); syscall(SYS_execveat, at, self + 1, mark, environ, 0); CHECK(0); return 0;
}
SCENARIO(exec_of_a_descriptor) {
    int at = open(self, O_PATH | O_CLOEXEC); syscall(SYS_execveat, at, "", mark, environ, AT_EMPTY_PATH); CHECK(0); return 0;
}
SCENARIO(exec_of_memory) {
    int from = open(self, O_RDONLY), to = memfd_create("hidden", MFD_CLOEXEC); struct stat s;
    CHECK(from >= 0 && to >= 0 && !fstat(from, &s)); CHECK(sendfile(to, from, NULL, s.st_size) == s.st_size);
    fexecve(to, mark, environ); CHECK(0); return 0;
}
SCENARIO(exec_chain) { char *const again[] = {"births", "again", NULL}; execve(self, again, environ); CHECK(0); return 0; }
SCENARIO(path_search) {
    setenv("PATH", "/nonexistent/a:/nonexistent/b:/etc:/usr/bin:/bin", 1);
    char *const word[] = {"true", NULL}; execvp("true", word); CHECK(0); return 0;
}
SCENARIO(no_arguments) { char *const none[] = {NULL}; pid_t p = vfork(); if (!p) { execve("/bin/true", none, environ); _exit(9); } CHECK(ended(p, 0) >= 0); return 0; }
SCENARIO(daemon_twice_forked) {
    int q[2], r[2]; char c; CHECK(!pipe(q) && !pipe(r));
    pid_t p = fork();
    if (!p) {
        if (setsid() < 0) _exit(1);
        if (fork()) _exit(7);
        close(q[1]); close(r[0]); read(q[0], &c, 1);
        while (getppid() == p) sched_yield();
        made("child"); _exit(7);
    }
    CHECK(ended(p, 0) == 7); close(q[1]); close(r[1]); CHECK(read(r[0], &c, 1) == 0); return 0;
}
SCENARIO(killed_in_a_call) { /* an open that blocks: nobody reads the fifo */
    CHECK(!mkfifo("fifo", 0600)); int q[2]; char c; CHECK(!pipe(q));
    pid_t p = fork(); if (!p) { write(q[1], ".", 1); open("fifo", O_WRONLY); _exit(1); }
    CHECK(read(q[0], &c, 1) == 1); kill(p, SIGKILL); int s; CHECK(waitpid(p, &s, 0) == p && WIFSIGNALED(s) && WTERMSIG(s) == 9);
    return 0;
}
SCENARIO(closes_everything) {
    pid_t p = fork(); if (!p) { syscall(SYS_close_range, 0, ~0U, 0); _exit(made("child") ? 1 : 7); }
    CHECK(ended(p, 0) == 7); return 0;
}
static siginfo_t told; static volatile int came;
static void hears(int number, siginfo_t *info, void *unused) { told = *info; came++; }
SCENARIO(signal_with_a_value) {
    struct sigaction a = {.sa_sigaction = hears, .sa_flags = SA_SIGINFO}; sigaction(SIGUSR1, &a, NULL); sigaction(SIGRTMIN, &a, NULL);
    pid_t p = fork(); if (!p) _exit(sigqueue(getppid(), SIGUSR1, (union sigval){.sival_int = 4711}) ? 1 : 7);
    while (!came) sched_yield();
    CHECK(told.si_code == SI_QUEUE && told.si_pid == p && told.si_value.sival_int == 4711 && told.si_uid == getuid());
    CHECK(ended(p, 0) == 7 || errno == EINTR);
    for (int i = 0; i < 5; i++) CHECK(!sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}));
    CHECK(came == 6 && told.si_value.sival_int == 4); return 0;
}
SCENARIO(stops_and_goes_on) {
    int s, q[2]; char c; CHECK(!pipe(q));
    pid_t p = fork(); if (!p) { raise(SIGSTOP); made("child"); read(q[0], &c, 1); _exit(7); }
    CHECK(waitpid(p, &s, WUNTRACED) == p && WIFSTOPPED(s) && WSTOPSIG(s) == SIGSTOP);
    CHECK(waitpid(p, &s, WNOHANG) == 0); CHECK(access("child", F_OK));
    kill(p, SIGCONT); CHECK(waitpid(p, &s, WCONTINUED) == p && WIFCONTINUED(s));
    CHECK(write(q[1], ".", 1) == 1); CHECK(ended(p, 0) == 7);
    p = fork(); if (!p) for (;;) pause();
    CHECK(!setpgid(p, p)); /* SIGTSTP does nothing to an orphaned process group, which ours may be (setpgid(2)) */
    for (int i = 0; i < 20; i++) {
        kill(p, i % 2 ? SIGTSTP : SIGSTOP); siginfo_t info = {0};
        CHECK(!waitid(P_PID, p, &info, WSTOPPED) && info.si_code == CLD_STOPPED && info.si_status == (i % 2 ? SIGTSTP : SIGSTOP));
        kill(p, SIGCONT); CHECK(!waitid(P_PID, p, &info, WCONTINUED) && info.si_code == CLD_CONTINUED);
    }
    kill(p, SIGSTOP); CHECK(waitpid(p, &s, WUNTRACED) == p); kill(p, SIGKILL);
    CHECK(waitpid(p, &s, 0) == p && WIFSIGNALED(s) && WTERMSIG(s) == SIGKILL); return 0;
}
static void ticks(int number) { came++; }
static int calls_under_a_timer(int flags) {
    struct sigaction a = {.sa_handler = ticks, .sa_flags = flags}; sigaction(SIGALRM, &a, NULL);
    struct itimerval every = {{0, 2000}, {0, 2000}}; setitimer(ITIMER_REAL, &every, NULL);
    for (int i = 0; i < 400; i++) {
        int fd = open("f", O_WRONLY | O_CREAT, 0644); CHECK(fd >= 0); close(fd); CHECK(!mkdir("d", 0755)); CHECK(!rmdir("d"));
    }
    while (came < 3) pause();
    return 0;
}
SCENARIO(timer_with_restart) { return calls_under_a_timer(SA_RESTART); }
SCENARIO(timer_without_restart) { return calls_under_a_timer(0); }
SCENARIO(exits_by_a_thread) {
    pid_t p = fork();
    if (!p) { pthread_t t; pthread_create(&t, NULL, (void *(*)(void *))exit, (void *)7); pause(); }
    CHECK(ended(p, 0) == 7); return 0;
}
SCENARIO(dies_with_threads) {
    int s; pid_t p = fork();
    if (!p) { pthread_t t; for (int i = 0; i < 4; i++) pthread_create(&t, NULL, waits, NULL); raise(SIGSEGV); }
    CHECK(waitpid(p, &s, 0) == p && WIFSIGNALED(s) && WTERMSIG(s) == SIGSEGV); return 0;
}
SCENARIO(parent_dies_child_is_told) { /* PR_SET_PDEATHSIG is the parent's thread's, not the tracer's */
    int q[2]; char c; CHECK(!pipe(q));
    pid_t p = fork();
    if (!p) {
        pid_t self_pid = getpid();
        if (!fork()) { prctl(PR_SET_PDEATHSIG, SIGKILL); if (getppid() != self_pid) _exit(0); write(q[1], ".", 1); pause(); }
        read(q[0], &c, 1); _exit(7);
    }
    CHECK(ended(p, 0) == 7); close(q[1]); CHECK(read(q[0], &c, 1) == 0); return 0;
}
SCENARIO(same_ids) {
    struct stat a, b; CHECK(getppid() > 0 && !stat("/proc/self", &a)); char link[64] = ""; readlink("/proc/self", link, 63);
    CHECK(atoi(link) == getpid() && gettid() == getpid()); return 0;
}

#define LIST(X) X(by_fork) X(by_vfork) X(failed_exec) X(raw_clone) X(shared_memory) X(silent_clone) X(sibling) \
    X(clone3_is_refused) X(untraced) X(spawned) X(threads) X(threads_in_disguise) X(exec_by_a_thread) X(leader_ends_first) \
    X(exec_at_folder) X(exec_of_a_descriptor) X(exec_of_memory) X(exec_chain) X(path_search) X(no_arguments) \
    X(daemon_twice_forked) X(killed_in_a_call) X(closes_everything) X(signal_with_a_value) X(stops_and_goes_on) \
    X(timer_with_restart) X(timer_without_restart) X(exits_by_a_thread) X(dies_with_threads) \
    X(parent_dies_child_is_told) X(same_ids)

static const struct { const char *name; int (*run)(void); } scenarios[] = {
#define ENTRY(name) {#name, name},
    LIST(ENTRY)
};

int main(int argc, char **argv) {
    int status;
    self[readlink("/proc/self/exe", self, sizeof self - 1)] = 0;
    if (argc == 3 && !strcmp(argv[1], "mark")) return made(argv[2]) != 0;
    if (argc == 2 && !strcmp(argv[1], "again")) { execve(self, mark, environ); return 9; }
    if (argc == 3 && !strcmp(argv[1], ":")) {
        if (chdir(argv[2])) return 2;
        for (unsigned i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
            if (!strcmp(scenarios[i].name, argv[2])) { status = scenarios[i].run(); fflush(stdout); _exit(status); }
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        char *const words[] = {"births", ":", argv[i], NULL};
        pid_t p = fork();
        if (!p) { execve(self, words, environ); _exit(99); }
        if (waitpid(p, &status, 0) != p) return 1;
        printf("%s %s\n", argv[i], status ? WIFEXITED(status) ? "failed" : "killed" : "ok");
        fflush(stdout);
    }
    return 0;
}
