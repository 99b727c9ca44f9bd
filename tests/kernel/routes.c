/* Every way to change a file that the recorder must see, each in a process of its own and in a folder of its own.
 *
 * routes NAME...   runs each route in ./NAME, where `f` holds "old\n" and `g` "other\n"; prints "NAME ok" or the errno.
 * A route that must fail, and does, is ok.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define TRY(call) do { if ((long)(call) < 0) return errno; } while (0)
#define FAIL(call, number) do { if ((long)(call) >= 0) return EPROTO; if (errno != (number)) return errno; } while (0)
#define ROUTE(name) static int name(void)

static int put(int fd, const char *text) { return write(fd, text, strlen(text)) == (long)strlen(text) ? 0 : -1; }
static int opened(const char *path, int flags) { return open(path, flags, 0644); }

ROUTE(rewrite) { int fd; TRY(fd = opened("f", O_WRONLY | O_TRUNC)); TRY(put(fd, "new\n")); return 0; }
ROUTE(create) { int fd; TRY(fd = opened("n", O_WRONLY | O_CREAT | O_EXCL)); TRY(put(fd, "new\n")); return 0; }
ROUTE(creat_call) { int fd; TRY(fd = syscall(SYS_creat, "n", 0644)); TRY(put(fd, "new\n")); return 0; }
ROUTE(old_open) { int fd; TRY(fd = syscall(SYS_open, "f", O_WRONLY | O_TRUNC)); TRY(put(fd, "new\n")); return 0; }
ROUTE(append) { int fd; TRY(fd = opened("f", O_WRONLY | O_APPEND)); TRY(put(fd, "more\n")); return 0; }
ROUTE(append_inherited) { return system("exec >> f; echo one; (echo two); /bin/echo three"); }
ROUTE(vectors) {
    int fd; TRY(fd = opened("f", O_RDWR));
    struct iovec v[2] = {{"ne", 2}, {"w\n", 2}};
    TRY(pwritev(fd, v, 2, 0)); return 0;
}
ROUTE(mapped) {
    int fd; TRY(fd = opened("f", O_RDWR));
    char *at = mmap(NULL, 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return errno;
    close(fd); memcpy(at, "new", 3); return 0;
}
ROUTE(copy_range) {
    int in, out; TRY(in = opened("g", O_RDONLY)); TRY(out = opened("f", O_WRONLY));
    TRY(copy_file_range(in, NULL, out, NULL, 6, 0)); return 0;
}
ROUTE(send_file) {
    int in, out; TRY(in = opened("g", O_RDONLY)); TRY(out = opened("f", O_WRONLY));
    TRY(sendfile(out, in, NULL, 6)); return 0;
}
ROUTE(spliced) {
    int p[2], out; TRY(pipe(p)); TRY(put(p[1], "new\n")); TRY(out = opened("f", O_WRONLY));
    TRY(splice(p[0], NULL, out, NULL, 4, 0)); return 0;
}
ROUTE(allocated) { int fd; TRY(fd = opened("f", O_WRONLY)); TRY(fallocate(fd, 0, 0, 6)); return 0; }
ROUTE(by_truncate) { TRY(truncate("f", 2)); return 0; }
ROUTE(by_ftruncate) { int fd; TRY(fd = opened("f", O_WRONLY)); TRY(ftruncate(fd, 2)); return 0; }
ROUTE(tmpfile_empty_path) {
    int fd; TRY(fd = opened(".", O_TMPFILE | O_WRONLY)); TRY(put(fd, "new\n"));
    TRY(linkat(fd, "", AT_FDCWD, "n", AT_EMPTY_PATH)); return 0;
}
ROUTE(tmpfile_by_proc) {
    int fd; char path[64]; TRY(fd = opened(".", O_TMPFILE | O_WRONLY)); TRY(put(fd, "new\n"));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    TRY(linkat(AT_FDCWD, path, AT_FDCWD, "n", AT_SYMLINK_FOLLOW)); return 0;
}
ROUTE(rename_over) {
    int fd; TRY(fd = opened(".f.tmp", O_WRONLY | O_CREAT | O_EXCL)); TRY(put(fd, "new\n")); close(fd);
    TRY(rename(".f.tmp", "f")); return 0;
}
ROUTE(rename_over_elsewhere) {
    int fd; TRY(mkdir("d", 0755)); TRY(fd = opened("d/t", O_WRONLY | O_CREAT)); TRY(put(fd, "new\n")); close(fd);
    TRY(rename("d/t", "f")); return 0;
}
ROUTE(renamed) { TRY(rename("f", "h")); return 0; }
ROUTE(exchanged) { TRY(renameat2(AT_FDCWD, "f", AT_FDCWD, "g", RENAME_EXCHANGE)); return 0; }
ROUTE(noreplace) { TRY(renameat2(AT_FDCWD, "f", AT_FDCWD, "h", RENAME_NOREPLACE)); return 0; }
ROUTE(noreplace_refused) { FAIL(renameat2(AT_FDCWD, "f", AT_FDCWD, "g", RENAME_NOREPLACE), EEXIST); return 0; }
ROUTE(directory_renamed) {
    int fd; TRY(mkdir("d", 0755)); TRY(fd = opened("d/t", O_WRONLY | O_CREAT)); TRY(put(fd, "new\n")); close(fd);
    TRY(rename("d", "e")); return 0;
}
ROUTE(hard_link) {
    int fd; TRY(link("f", "h")); TRY(fd = opened("h", O_WRONLY | O_TRUNC)); TRY(put(fd, "new\n")); return 0;
}
ROUTE(symbolic) { TRY(symlink("f", "l")); return 0; }
ROUTE(through_symlink) {
    int fd; TRY(symlink("f", "l")); TRY(fd = opened("l", O_WRONLY | O_TRUNC)); TRY(put(fd, "new\n")); return 0;
}
ROUTE(nofollow) { TRY(symlink("f", "l")); FAIL(opened("l", O_WRONLY | O_TRUNC | O_NOFOLLOW), ELOOP); return 0; }
ROUTE(linked_folder) {
    int fd; TRY(mkdir("d", 0755)); TRY(symlink("d", "l"));
    TRY(fd = opened("l/n", O_WRONLY | O_CREAT)); TRY(put(fd, "new\n")); return 0;
}
ROUTE(at_folder) {
    int at, fd; TRY(at = opened("..", O_PATH | O_DIRECTORY));
    TRY(fd = openat(at, "at_folder/f", O_WRONLY | O_TRUNC)); TRY(put(fd, "new\n")); return 0;
}
ROUTE(open_how) {
    struct open_how how = {.flags = O_WRONLY | O_TRUNC, .resolve = RESOLVE_BENEATH};
    int fd; TRY(fd = syscall(SYS_openat2, AT_FDCWD, "./f", &how, sizeof how)); TRY(put(fd, "new\n")); return 0;
}
ROUTE(proc_descriptor) {
    int fd, again; char path[64]; TRY(fd = opened("f", O_RDONLY));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    TRY(again = opened(path, O_WRONLY | O_TRUNC)); TRY(put(again, "new\n")); return 0;
}
ROUTE(dev_descriptor) {
    int fd, again; TRY(fd = opened("f", O_RDONLY)); TRY(dup2(fd, 1));
    TRY(again = opened("/dev/stdout", O_WRONLY | O_TRUNC)); TRY(put(again, "new\n")); return 0;
}
ROUTE(proc_directory) {
    int fd; TRY(fd = opened("/proc/self/cwd/f", O_WRONLY | O_TRUNC)); TRY(put(fd, "new\n")); return 0;
}
ROUTE(proc_by_link) {
    int fd; TRY(symlink("/proc/self/cwd", "l"));
    TRY(fd = opened("l/f", O_WRONLY | O_TRUNC)); TRY(put(fd, "new\n")); return 0;
}
ROUTE(passed) {
    int pair[2], fd; char c = 'x', space[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec v = {&c, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    TRY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    int opener = fork();
    if (!opener) {
        if ((fd = opened("f", O_WRONLY | O_TRUNC)) < 0) _exit(1);
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET; h->cmsg_type = SCM_RIGHTS; h->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(h), &fd, sizeof fd);
        _exit(sendmsg(pair[0], &m, 0) < 0);
    }
    int status; TRY(waitpid(opener, &status, 0)); if (status) return EPROTO;
    TRY(recvmsg(pair[1], &m, 0)); memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    TRY(put(fd, "new\n")); return 0;
}
ROUTE(after_the_openers_end) {
    int p[2], q[2], fd; char c; TRY(pipe(p)); TRY(pipe(q));
    int opener = fork();
    if (!opener) {
        if ((fd = opened("f", O_WRONLY | O_TRUNC)) < 0) _exit(1);
        if (fork()) _exit(0);
        close(p[1]); close(q[0]);
        if (read(p[0], &c, 1)) _exit(1); /* until the opener is gone: told by the end of file */
        _exit(put(fd, "new\n") || put(q[1], "."));
    }
    int status; TRY(waitpid(opener, &status, 0)); close(p[1]); close(q[1]);
    if (status || read(q[0], &c, 1) != 1) return EPROTO;
    read(q[0], &c, 1); return 0;
}
static int shared_fd;
static void *write_it(void *unused) { put(shared_fd, "new\n"); return NULL; }
static void *open_it(void *unused) { shared_fd = opened("f", O_WRONLY | O_TRUNC); return NULL; }
ROUTE(two_threads) {
    pthread_t t; pthread_create(&t, NULL, open_it, NULL); pthread_join(t, NULL);
    pthread_create(&t, NULL, write_it, NULL); pthread_join(t, NULL); return shared_fd < 0;
}
ROUTE(mode) { TRY(chmod("f", 0600)); return 0; }
ROUTE(mode_descriptor) { int fd; TRY(fd = opened("f", O_RDONLY)); TRY(fchmod(fd, 0600)); return 0; }
ROUTE(mode_at) { TRY(syscall(SYS_fchmodat, AT_FDCWD, "f", 0600)); return 0; }
ROUTE(mode_at2) { TRY(syscall(452, AT_FDCWD, "f", 0600, 0)); return 0; }
ROUTE(mode_at2_empty) { int fd; TRY(fd = opened("f", O_PATH)); TRY(syscall(452, fd, "", 0600, AT_EMPTY_PATH)); return 0; }
ROUTE(mode_proc) {
    int fd; char path[64]; TRY(fd = opened("f", O_PATH)); snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    TRY(chmod(path, 0600)); return 0;
}
ROUTE(owner) { TRY(chown("f", 12, 34)); return 0; }
ROUTE(owner_descriptor) { int fd; TRY(fd = opened("f", O_RDONLY)); TRY(fchown(fd, 12, -1)); return 0; }
ROUTE(owner_at) { TRY(fchownat(AT_FDCWD, "f", -1, 34, AT_SYMLINK_NOFOLLOW)); return 0; }
ROUTE(attribute) { TRY(setxattr("f", "user.x", "1", 1, 0)); return 0; }
ROUTE(attribute_removed) {
    int fd; TRY(fd = opened("f", O_RDONLY)); TRY(fsetxattr(fd, "user.x", "1", 1, 0)); TRY(removexattr("f", "user.x"));
    return 0;
}
ROUTE(folders) { TRY(mkdir("d", 0750)); TRY(mkdirat(AT_FDCWD, "d/e", 0700)); TRY(rmdir("d/e")); return 0; }
ROUTE(tree) { return system("mkdir -p a/b; echo new > a/b/n; rm -rf a"); }
ROUTE(fifo) { TRY(mkfifo("p", 0600)); return 0; }
ROUTE(removed) { TRY(unlink("f")); return 0; }
ROUTE(removed_at) { TRY(unlinkat(AT_FDCWD, "f", 0)); return 0; }
ROUTE(removed_while_open) {
    int fd; TRY(fd = opened("f", O_WRONLY | O_APPEND)); TRY(unlink("f")); TRY(put(fd, "more\n")); return 0;
}
ROUTE(replaced) {
    int fd; TRY(unlink("f")); TRY(fd = opened("f", O_WRONLY | O_CREAT)); TRY(put(fd, "new\n")); return 0;
}
ROUTE(same_content) { int fd; TRY(fd = opened("f", O_WRONLY | O_TRUNC)); TRY(put(fd, "old\n")); return 0; }
ROUTE(only_opened) { TRY(opened("f", O_RDWR)); return 0; }
ROUTE(failures) {
    FAIL(unlink("absent"), ENOENT); FAIL(mkdir("f", 0755), EEXIST); FAIL(rmdir("f"), ENOTDIR); FAIL(rmdir(".."), ENOTEMPTY);
    FAIL(opened("..", O_WRONLY), EISDIR); FAIL(link("f", "g"), EEXIST); FAIL(rename("absent", "f"), ENOENT);
    FAIL(symlink("f", "g"), EEXIST); FAIL(truncate("..", 0), EISDIR); FAIL(opened("f", O_WRONLY | O_CREAT | O_EXCL), EEXIST);
    FAIL(chmod("absent", 0600), ENOENT); FAIL(unlink((char *)1), EFAULT); FAIL(unlink((char *)-2), EFAULT); FAIL(opened("f/x", O_WRONLY | O_CREAT), ENOTDIR);
    FAIL(mknod("f", S_IFIFO | 0600, 0), EEXIST); FAIL(truncate("f", -1), EINVAL); FAIL(unlink(""), ENOENT);
    FAIL(opened("", O_WRONLY | O_CREAT), ENOENT); FAIL(openat(99, "f", O_WRONLY | O_TRUNC), EBADF);
    FAIL(opened("/proc/self/fd/99", O_WRONLY | O_TRUNC), ENOENT); FAIL(fchmod(99, 0600), EBADF);
    FAIL(syscall(SYS_openat2, AT_FDCWD, "f", 1, 24), EFAULT); return 0;
}
ROUTE(edges) { /* strings and structs at the end of a mapping, and paths without an end */
    static char endless[5000]; memset(endless, 'a', 4999);
    FAIL(unlink(endless), ENAMETOOLONG); FAIL(mkdir(endless, 0755), ENAMETOOLONG); FAIL(opened(endless + 4999 - 300, O_WRONLY | O_CREAT), ENAMETOOLONG);
    FAIL(symlink(endless, "l"), ENAMETOOLONG); FAIL(rename("f", endless), ENAMETOOLONG);
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); TRY(munmap(page + 4096, 4096));
    memset(page, 'b', 4096); FAIL(unlink(page + 4090), EFAULT); FAIL(truncate(page, 0), ENAMETOOLONG); FAIL(truncate(page + 1, 0), EFAULT);
    FAIL(syscall(SYS_openat2, AT_FDCWD, "f", page + 4088, 24), EFAULT); FAIL(setxattr("f", page + 4090, "", 0, 0), EFAULT);
    strcpy(page + 4093, "d/"); TRY(mkdir(page + 4093, 0755)); TRY(rmdir("./d/../d//")); return 0;
}
ROUTE(link_followed) { TRY(symlink("f", "l")); TRY(linkat(AT_FDCWD, "l", AT_FDCWD, "h", AT_SYMLINK_FOLLOW)); return 0; }
ROUTE(link_not_followed) { TRY(symlink("f", "l")); TRY(link("l", "h")); return 0; }
ROUTE(slashes) {
    TRY(mkdir("d/", 0755)); TRY(rename("d/", "./e//")); TRY(chmod("e/.", 0700)); TRY(rmdir("e/")); return 0;
}
ROUTE(mapped_and_left) { /* the descriptor is closed long before the last write, and nobody is told of that */
    int fd; char c; TRY(fd = opened("f", O_RDWR));
    char *at = mmap(NULL, 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); if (at == MAP_FAILED) return errno;
    close(fd); usleep(700000); memcpy(at, "new", 3); return 0;
}
ROUTE(forbidden) {
    FAIL(opened("locked/f", O_WRONLY | O_TRUNC), EACCES); FAIL(unlink("locked/f"), EACCES);
    FAIL(rename("f", "locked/g"), EACCES); FAIL(mkdir("locked/d", 0755), EACCES); FAIL(chmod("/etc/passwd", 0600), EPERM);
    return 0;
}

#define LIST(X) X(rewrite) X(create) X(creat_call) X(old_open) X(append) X(append_inherited) X(vectors) X(mapped) \
    X(copy_range) X(send_file) X(spliced) X(allocated) X(by_truncate) X(by_ftruncate) X(tmpfile_empty_path) \
    X(tmpfile_by_proc) X(rename_over) X(rename_over_elsewhere) X(renamed) X(exchanged) X(noreplace) \
    X(noreplace_refused) X(directory_renamed) X(hard_link) X(symbolic) X(through_symlink) X(nofollow) \
    X(linked_folder) X(at_folder) X(open_how) X(proc_descriptor) X(dev_descriptor) X(proc_directory) X(proc_by_link) \
    X(passed) X(after_the_openers_end) X(two_threads) X(mode) X(mode_descriptor) X(mode_at) X(mode_at2) \
    X(mode_at2_empty) X(mode_proc) X(owner) X(owner_descriptor) X(owner_at) X(attribute) X(attribute_removed) \
    X(folders) X(tree) X(fifo) X(removed) X(removed_at) X(removed_while_open) X(replaced) X(same_content) \
    X(only_opened) X(failures) X(edges) \
    X(link_followed) X(link_not_followed) X(slashes) X(mapped_and_left) X(forbidden)

static const struct { const char *name; int (*run)(void); } routes[] = {
#define ENTRY(name) {#name, name},
    LIST(ENTRY)
};

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        for (unsigned r = 0; r < sizeof routes / sizeof *routes; r++) {
            if (strcmp(routes[r].name, argv[i])) continue;
            int status, pid = fork();
            if (!pid) _exit(chdir(argv[i]) ? errno : routes[r].run());
            if (waitpid(pid, &status, 0) < 0) return 1;
            if (!status) printf("%s ok\n", argv[i]);
            else printf("%s %s\n", argv[i], WIFEXITED(status) ? strerrorname_np(WEXITSTATUS(status)) : "killed");
            fflush(stdout);
        }
    return 0;
}
