/*
 * Whose files seem to be whose. A mount with ids translated takes its table from a user namespace;
 * those made here are for nothing else: a child lives in each just long enough for its table to be
 * written and a descriptor of it to be opened.
 */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"

#define TABLE_SIZE 160

static int write_table(pid_t pid, const char *file, const char *table)
{
	_cleanup_close_ int fd = -1;
	size_t len = strlen(table);
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, table, len) == (ssize_t)len ? 0 : -1;
}

static int make_userns(const char *users, const char *groups, struct error *err)
{
	char path[64];
	int fd = -1;
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0) {
		for (;;)
			pause();
	}
	if (pid < 0)
		return error_errno(err, errno, "making a user namespace");
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	if (write_table(pid, "uid_map", users) == 0 && write_table(pid, "gid_map", groups) == 0)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		error_errno(err, errno, "translating the owner of a mount");
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return fd;
}

int owner_userns(uid_t owner, gid_t group, uid_t payload, struct error *err)
{
	char users[TABLE_SIZE], groups[TABLE_SIZE];

	snprintf(users, sizeof(users), "%u %u 1\n", owner, payload);
	snprintf(groups, sizeof(groups), "%u %u 1\n", group, payload);
	return make_userns(users, groups, err);
}

static void add_line(char out[TABLE_SIZE], uint32_t from, uint32_t to, uint32_t count)
{
	size_t len = strlen(out);

	if (count > 0)
		snprintf(out + len, TABLE_SIZE - len, "%u %u %u\n", from, to, count);
}

/* An owner beyond the range takes the payload's number, and nobody gets the owner's. */
static void exchange(char out[TABLE_SIZE], uint32_t base, uint32_t owner, uint32_t payload)
{
	uint32_t low = owner < payload ? owner : payload, high = owner < payload ? payload : owner;

	out[0] = 0;
	add_line(out, 0, base, low);
	add_line(out, owner, base + payload, 1);
	if (owner < RANGE_SIZE && owner != payload)
		add_line(out, payload, base + owner, 1);
	if (high >= RANGE_SIZE)
		high = RANGE_SIZE;
	if (high > low)
		add_line(out, low + 1, base + low + 1, high - low - 1);
	if (high < RANGE_SIZE)
		add_line(out, high + 1, base + high + 1, RANGE_SIZE - high - 1);
}

int exchanged_userns(uid_t owner, gid_t group, uid_t base, uid_t payload, struct error *err)
{
	char users[TABLE_SIZE], groups[TABLE_SIZE];

	exchange(users, base, owner, payload);
	exchange(groups, base, group, payload);
	return make_userns(users, groups, err);
}
