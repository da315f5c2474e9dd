/*
 * Starting a child without fork(): the server may be large, and forking it costs tens of
 * milliseconds. The child gets exactly the environment, descriptors and directory named here,
 * default signal dispositions and an empty mask; nothing else of the parent. (Built with musl, a
 * descriptor that somebody forgot to make close-on-exec would get through.)
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include "base/error.h"

struct spawn_spec {
	char *const
		*argv; /* argv[0] with a slash is used as it is, else looked up in PATH of envp */
	char *const *envp;
	const char *cwd; /* NULL: the parent's */
	int stdin_fd;    /* -1: /dev/null */
	int stdout_fd;
	int stderr_fd;
	bool new_session; /* setsid: the child leads its own session and process group */
};

/*
 * On success *pid is the child and *pidfd names it race-free (the caller closes it and reaps the
 * child). ERR_COMMAND_NOT_FOUND and ERR_COMMAND_DENIED tell a shell's 127 from its 126;
 * ERR_EXEC is everything else, the working directory included. pidfd may be NULL.
 */
int spawn(const struct spawn_spec *spec, pid_t *pid, int *pidfd, struct error *err);

/*
 * Kernel start time of a process in clock ticks, so that a pid can be told from its reuse; 0 if
 * gone. A zombie still has one.
 */
unsigned long long process_start_time(pid_t pid);
/* True if pid exists, is no zombie, and started at that time. */
bool process_is(pid_t pid, unsigned long long start_time);
