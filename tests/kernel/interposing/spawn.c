/* Starts the server by vfork, posix_spawn, or an exec of a thread that is not the first; prints what it said. */
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static char **words;
static void *become(void *none) { execvp(words[0], words); _exit(126); }
int main(int argc, char **argv) {
    int to[2], back[2], status;
    words = argv + 2;
    pipe2(to, 02000000); pipe2(back, 02000000);
    pid_t pid = -1;
    if (!strcmp(argv[1], "vfork")) {
        pid = vfork();
        if (pid == 0) { dup2(to[0], 0); dup2(back[1], 1); execvp(words[0], words); _exit(126); }
    } else if (!strcmp(argv[1], "spawn")) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, to[0], 0);
        posix_spawn_file_actions_adddup2(&actions, back[1], 1);
        posix_spawnp(&pid, words[0], &actions, NULL, words, environ);
    } else {
        pid = fork();
        if (pid == 0) {
            pthread_t thread;
            dup2(to[0], 0); dup2(back[1], 1);
            pthread_create(&thread, NULL, become, NULL);
            pause();
        }
    }
    close(to[0]); close(back[1]);
    FILE *reading = fdopen(back[0], "r");
    char *line = NULL; size_t size = 0;
    getline(&line, &size, reading); fputs(line, stdout);
    write(to[1], "hello\n", 6);
    getline(&line, &size, reading); fputs(line, stdout);
    close(to[1]);
    while (getline(&line, &size, reading) > 0) fputs(line, stdout);
    waitpid(pid, &status, 0);
    printf("%d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    return 0;
}
