/*
 * Starting one program with everything about it decided beforehand. The child is made the way vfork
 * does it, sharing memory until it has become the program: no page tables are copied, and a failure
 * on the way is simply written into the struct. The child makes system calls and nothing else. It
 * is the first to go when memory runs out. Unlike vfork the wait for it has an end: on its way it
 * is the payload's user already, and a command of that user may stop it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include "relay/user.h"

enum launch_step {
	STEP_NONE,
	STEP_CLONE,
	STEP_ENTER,
	STEP_STDIO,
	STEP_LIMITS,
	STEP_USER,
	STEP_CWD,
	STEP_FILTER,
	STEP_EXEC,
	STEP_STOPPED, /* something held it with SIGSTOP; it was killed */
};

struct launch_limit {
	int resource;
	struct rlimit64_pair {
		uint64_t soft;
		uint64_t hard;
	} value;
};

/* The launcher's own standing when memory runs out: raised while a child inherits it. */
struct launch_oom {
	int fd; /* -1: not ours to change */
	char own[16];
};
void launch_oom_open(struct launch_oom *oom);

struct launch {
	char *const *argv;
	char *const *envp;
	const char *path; /* where argv[0] is looked for, unless it has a slash */
	int root_fd;      /* base of a relative cwd */
	const char *cwd;
	int stdin_fd, stdout_fd, stderr_fd; /* all above 2 */
	bool terminal;           /* stdin_fd is a PTY's end: becomes the controlling terminal */
	const struct user *user; /* NULL: stay who we are */
	bool confine;            /* no new privileges; the bounding set is the relay's own */
	const struct launch_limit *limits;
	size_t limit_count;
	const int *enter_fds; /* cgroups to enter, by writing "0" */
	size_t enter_count;
	const void *filter;           /* seccomp program, or NULL; needs confine */
	size_t filter_len;            /* bytes */
	const struct launch_oom *oom; /* NULL: the child is told by itself, which costs more */
	/* Filled by the child. */
	enum launch_step failed_step;
	int failed_errno;
};

#define LAUNCH_STACK_SIZE (64u << 10)
void *launch_stack_new(void);

/*
 * 0 and *pid of the running program, or -1 with failed_step and failed_errno set and no child left.
 * cgroup_fd >= 0 makes it be born inside that cgroup v2 directory.
 */
int launch(struct launch *l, void *stack, int cgroup_fd, pid_t *pid);

/*
 * For who waits for a child to get going: after some time without a sign of it. One that was
 * stopped is sent on its way; false: that was to no avail so often that it has been killed. Both
 * counts begin with 0.
 */
#define LAUNCH_LOOK_MS 50
bool launch_nudge(pid_t pid, unsigned *stops);

/* True where launch can put a child into a cgroup. */
bool launch_knows_cgroups(void);
