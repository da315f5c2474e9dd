#include "wire/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"

#define ENVIRON_MAX (4u << 20)
/* Nobody can make us wait longer than that by looking like it. */
#define BETWEEN_MS 50
#define STATUS_MAX 8192

struct process {
	pid_t pid;
	pid_t parent;
	pid_t session;
	char state;
	bool chosen;
};

struct snapshot {
	int proc_fd;
	struct process *list;
	size_t count;
};

static void snapshot_free(struct snapshot *s)
{
	free(s->list);
	if (s->proc_fd >= 0)
		close(s->proc_fd);
}

/* "pid (comm) S ppid pgrp session ...", where comm may hold anything, parentheses included. */
static bool stat_parse(const char *text, struct process *p)
{
	const char *rest = strrchr(text, ')');
	int parent, group, session;

	if (!rest || sscanf(rest + 1, " %c %d %d %d", &p->state, &parent, &group, &session) != 4)
		return false;
	p->parent = parent;
	p->session = session;
	return true;
}

static bool process_read(int proc_fd, pid_t pid, struct process *out)
{
	char path[32], text[512];
	_cleanup_close_ int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "%d/stat", (int)pid);
	fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return false;
	text[n] = 0;
	*out = (struct process){ .pid = pid };
	return stat_parse(text, out);
}

static void snapshot_take(struct snapshot *s)
{
	struct dirent *entry;
	size_t cap = 0;
	DIR *dir;

	*s = (struct snapshot){ .proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	dir = opendir("/proc");
	while (dir && (entry = readdir(dir))) {
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (pid <= 0)
			continue;
		if (s->count == cap) {
			cap = MAX_OF(cap * 2, 64);
			s->list = xreallocarray(s->list, cap, sizeof(*s->list));
		}
		if (process_read(s->proc_fd, pid, &s->list[s->count]))
			s->count++;
	}
	if (dir)
		closedir(dir);
}

static bool is_over(const struct process *p)
{
	return p->state == 'Z' || p->state == 'X';
}

/* The second look behind the pidfd tells whether the pid still is the process of the snapshot. */
static void signal_surely(const struct snapshot *s, const struct process *p, int signal)
{
	_cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	struct process now;

	if (pidfd < 0 || !process_read(s->proc_fd, p->pid, &now))
		return;
	/* An orphan changes its parent, but nobody enters a foreign session. */
	if (now.session != p->session && now.session != p->pid)
		return;
	syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

static const struct process *snapshot_find(const struct snapshot *s, pid_t pid)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->list[i].pid == pid)
			return &s->list[i];
	return NULL;
}

size_t proc_signal_descendants(pid_t ancestor, int signal)
{
	_cleanup_(snapshot_free) struct snapshot s;
	size_t live = 0;
	bool more = true;

	snapshot_take(&s);
	while (more) {
		more = false;
		for (size_t i = 0; i < s.count; i++) {
			struct process *p = &s.list[i];
			const struct process *parent;

			if (p->chosen || p->pid == ancestor)
				continue;
			parent = p->parent == ancestor ? NULL : snapshot_find(&s, p->parent);
			if (p->parent != ancestor && !(parent && parent->chosen))
				continue;
			p->chosen = true;
			more = true;
		}
	}
	for (size_t i = 0; i < s.count; i++) {
		if (!s.list[i].chosen || is_over(&s.list[i]))
			continue;
		live++;
		signal_surely(&s, &s.list[i], signal);
	}
	return live;
}

static bool list_holds(const struct buf *text, const char *mark)
{
	size_t len = strlen(mark) + 1;

	for (size_t pos = 0; pos < text->len;) {
		size_t item = strnlen(text->data + pos, text->len - pos) + 1;

		if (item == len && pos + item <= text->len &&
		    memcmp(text->data + pos, mark, len) == 0)
			return true;
		pos += item;
	}
	return false;
}

/* In the middle of an exec it has a new memory and nothing in it yet: neither arguments nor marks.
 */
static bool is_between_programs(int proc_fd, pid_t pid)
{
	_cleanup_buf_ struct buf text = { 0 };
	char path[32], target[8];

	snprintf(path, sizeof(path), "%d/cmdline", (int)pid);
	if (file_read(proc_fd, path, &text, ENVIRON_MAX, NULL) < 0 || text.len > 0)
		return false;
	/* Threads of the kernel have no arguments either, and no program. */
	snprintf(path, sizeof(path), "%d/exe", (int)pid);
	return readlinkat(proc_fd, path, target, sizeof(target)) > 0;
}

/* `patience`: how many milliseconds may still be waited for such as are between programs. */
static bool carries(int proc_fd, pid_t pid, const char *mark, int *patience)
{
	for (bool settled = false;;) {
		_cleanup_buf_ struct buf text = { 0 };
		char path[32];

		snprintf(path, sizeof(path), "%d/environ", (int)pid);
		if (file_read(proc_fd, path, &text, ENVIRON_MAX, NULL) < 0)
			return false;
		if (text.len > 0 || settled)
			return list_holds(&text, mark);
		settled = *patience == 0 || !is_between_programs(proc_fd, pid);
		if (!settled)
			*patience -= poll(NULL, 0, 1) == 0;
	}
}

size_t proc_signal_marked(const char *mark, int signal)
{
	_cleanup_(snapshot_free) struct snapshot s;
	int patience = BETWEEN_MS;
	size_t live = 0;

	snapshot_take(&s);
	for (size_t i = 0; i < s.count; i++) {
		if (s.list[i].pid != getpid() && !is_over(&s.list[i]))
			s.list[i].chosen = carries(s.proc_fd, s.list[i].pid, mark, &patience);
	}
	for (size_t i = 0; i < s.count; i++) {
		const struct process *leader;

		if (s.list[i].chosen || is_over(&s.list[i]) || s.list[i].pid == getpid())
			continue;
		leader = snapshot_find(&s, s.list[i].session);
		s.list[i].chosen = leader && leader->chosen && leader->pid == leader->session;
	}
	for (size_t i = 0; i < s.count; i++) {
		if (!s.list[i].chosen)
			continue;
		live++;
		signal_surely(&s, &s.list[i], signal);
	}
	return live;
}

/* From the status file: the owner of the directory is root for processes that are not dumpable. */
static bool is_ours(int proc_fd, pid_t pid)
{
	_cleanup_buf_ struct buf text = { 0 };
	char path[32];
	unsigned real, effective;
	const char *line;

	snprintf(path, sizeof(path), "%d/status", (int)pid);
	if (file_read(proc_fd, path, &text, STATUS_MAX, NULL) < 0)
		return false;
	line = strstr(buf_str(&text), "\nUid:");
	return line && sscanf(line + 5, "%u %u", &real, &effective) == 2 && effective == geteuid();
}

static bool is_command(int proc_fd, pid_t pid, char *const *argv)
{
	_cleanup_buf_ struct buf text = { 0 };
	char path[32];
	size_t pos = 0;

	snprintf(path, sizeof(path), "%d/cmdline", (int)pid);
	if (file_read(proc_fd, path, &text, ENVIRON_MAX, NULL) < 0)
		return false;
	for (; *argv; argv++) {
		if (pos >= text.len || strcmp(text.data + pos, *argv) != 0)
			return false;
		pos += strlen(*argv) + 1;
	}
	return pos == text.len;
}

pid_t proc_find_command(char *const *argv)
{
	_cleanup_(snapshot_free) struct snapshot s;

	snapshot_take(&s);
	for (size_t i = 0; i < s.count; i++)
		if (s.list[i].pid != getpid() && !is_over(&s.list[i]) &&
		    is_command(s.proc_fd, s.list[i].pid, argv) && is_ours(s.proc_fd, s.list[i].pid))
			return s.list[i].pid;
	return 0;
}
