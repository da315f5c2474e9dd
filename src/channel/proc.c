#include "channel/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/fd.h"
#include "base/text.h"

#define ENVIRON_MAX ((size_t)4 << 20)
/* Of a millisecond each; a program is loaded within a few. */
#define EXEC_WAITS 100
#define CHILDREN_MAX ((size_t)1 << 20)

static int open_proc(pid_t pid, const char *file)
{
	char path[96];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static ssize_t read_some(int fd, char *data, size_t size)
{
	ssize_t n;

	do
		n = read(fd, data, size);
	while (n < 0 && errno == EINTR);
	return n;
}

/* Numbers of the fields in /proc/<pid>/stat as proc(5) counts them. */
enum stat_field {
	STAT_STATE = 3,
	STAT_PARENT = 4,
	STAT_SESSION = 6,
	STAT_THREADS = 20,
	STAT_START_TIME = 22,
	STAT_MEMORY = 23,
	STAT_ENV_END = 51,
	STAT_FIELDS,
};

bool proc_read(pid_t pid, struct proc *out)
{
	_cleanup_close_ int fd = open_proc(pid, "stat");
	char text[1024];
	unsigned long long field[STAT_FIELDS] = { 0 };
	ssize_t n = fd < 0 ? -1 : read_some(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return false;
	text[n] = '\0';

	/* The command's name may hold spaces and parentheses, but nothing after it does. */
	char *p = strrchr(text, ')');

	if (!p || p[1] != ' ' || !p[2])
		return false;

	char state = p[2];

	p += 3;
	for (int i = STAT_STATE + 1; i < STAT_FIELDS; i++)
		field[i] = strtoull(p, &p, 10);

	bool one_thread = field[STAT_THREADS] <= 1;

	*out = (struct proc){
		.pid = pid,
		.parent = (pid_t)field[STAT_PARENT],
		.session = (pid_t)field[STAT_SESSION],
		.state = state,
		/* A program whose first thread has ended looks like a zombie while others go on. */
		.dead = (state == 'Z' || state == 'X') && one_thread,
		.ending = field[STAT_MEMORY] == 0 && one_thread,
		.in_exec = field[STAT_MEMORY] > 0 && field[STAT_ENV_END] == 0,
		.start_time = field[STAT_START_TIME],
	};
	return out->start_time > 0 || pid == 1;
}

void proc_list_add(struct proc_list *list, const struct proc *proc)
{
	if (list->count == list->cap) {
		list->cap = list->cap ? 2 * list->cap : 64;
		list->items = xreallocarray(list->items, list->cap, sizeof(*list->items));
	}
	list->items[list->count++] = *proc;
}

void proc_list_clear(struct proc_list *list)
{
	free(list->items);
	*list = (struct proc_list){ 0 };
}

static int compare(const void *a, const void *b)
{
	const struct proc *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid > y->pid ? 1 : -1;
	return (x->start_time > y->start_time) - (x->start_time < y->start_time);
}

void proc_list_sort(struct proc_list *list)
{
	if (list->count > 1)
		qsort(list->items, list->count, sizeof(*list->items), compare);
}

const struct proc *proc_list_find(const struct proc_list *list, pid_t pid)
{
	size_t low = 0, high = list->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (list->items[middle].pid == pid)
			return &list->items[middle];
		if (list->items[middle].pid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

void proc_list_all(struct proc_list *out)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;

	out->count = 0;
	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		struct proc proc;

		if (isdigit((unsigned char)entry->d_name[0]) &&
		    proc_read((pid_t)atoi(entry->d_name), &proc))
			proc_list_add(out, &proc);
	}
	closedir(dir);
	proc_list_sort(out);
}

static void keep_children(struct proc_list *list)
{
	size_t kept = 0;

	for (size_t i = 0; i < list->count; i++) {
		if (list->items[i].parent == getpid())
			list->items[kept++] = list->items[i];
	}
	list->count = kept;
}

void proc_list_children(struct proc_list *out)
{
	_cleanup_buf_ struct buf text = { 0 };
	char file[64], *end;

	/* Orphans go to the first living thread of the subreaper: the main thread. */
	snprintf(file, sizeof(file), "task/%d/children", (int)getpid());

	_cleanup_close_ int fd = open_proc(getpid(), file);

	if (fd < 0 || fd_read_all(fd, &text, CHILDREN_MAX, NULL) < 0) {
		proc_list_all(out);
		keep_children(out);
		return;
	}
	out->count = 0;
	for (const char *p = buf_str(&text);; p = end) {
		pid_t pid = (pid_t)strtol(p, &end, 10);
		struct proc proc;

		if (end == p)
			break;
		if (proc_read(pid, &proc))
			proc_list_add(out, &proc);
	}
}

pid_t proc_newest(void)
{
	_cleanup_close_ int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
	char text[128];
	ssize_t n = fd < 0 ? -1 : read_some(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return 0;
	text[n] = '\0';

	/* "0.20 0.18 0.12 1/80 11206" */
	const char *last = strrchr(text, ' ');

	return last ? (pid_t)atoi(last + 1) : 0;
}

static void take_mark(const char *entry, const char *name, char out[PROC_MARK_SIZE])
{
	size_t len = strlen(name);

	if (!out[0] && strncmp(entry, name, len) == 0 && entry[len] == '=')
		snprintf(out, PROC_MARK_SIZE, "%s", entry + len + 1);
}

/*
 * Goes through the environment piece by piece: it may be megabytes, and only two entries matter.
 * An entry too long for a mark is not one. False when there was nothing to read.
 */
static bool read_marks(int fd, struct proc_marks *out)
{
	char piece[4096], entry[PROC_MARK_SIZE + sizeof(MARK_EXEC_ID)];
	size_t len = 0, total = 0;
	ssize_t n;

	while (total < ENVIRON_MAX && (n = read_some(fd, piece, sizeof(piece))) > 0) {
		total += (size_t)n;
		for (ssize_t i = 0; i < n; i++) {
			if (len < sizeof(entry))
				entry[len] = piece[i];
			len++;
			if (piece[i] != '\0')
				continue;
			if (len <= sizeof(entry)) {
				take_mark(entry, MARK_OWNER, out->owner);
				take_mark(entry, MARK_EXEC_ID, out->exec_id);
			}
			len = 0;
		}
	}
	return total > 0;
}

void proc_marks_read(pid_t pid, struct proc_marks *out)
{
	*out = (struct proc_marks){ 0 };
	/* Whoever is caught in the middle of execve() has no environment for a moment. */
	for (int waits = 0; waits < EXEC_WAITS; waits++) {
		_cleanup_close_ int fd = open_proc(pid, "environ");
		struct proc proc;

		if (fd < 0 || read_marks(fd, out) || !proc_read(pid, &proc) || !proc.in_exec)
			return;
		poll(NULL, 0, 1);
	}
}

bool proc_signal(const struct proc *proc, int signal)
{
	_cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, proc->pid, 0);
	struct proc now;

	/* The descriptor names one process for good; that it is ours is asked after it was opened.
	 */
	if (pidfd < 0 || !proc_read(proc->pid, &now) || now.start_time != proc->start_time)
		return false;
	return syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) == 0;
}
