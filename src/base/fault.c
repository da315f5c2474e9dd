#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define MAX_ARMED 256
#define MAX_NAME 128

/* Made by the linker from the section; weak, so that a program without any point links too. */
extern const struct fault_point *const __start_berth_faults[] __attribute__((weak));
extern const struct fault_point *const __stop_berth_faults[] __attribute__((weak));

#define FAULT_ACTIONS(X)                                                                           \
	X(ACT_KILL, "kill")                                                                        \
	X(ACT_ERROR, "error")                                                                      \
	X(ACT_HANG, "hang")                                                                        \
	X(ACT_SKIP, "skip")

enum fault_action {
#define X(name, wire) name,
	FAULT_ACTIONS(X)
#undef X
		ACT_COUNT
};

static const char *const action_words[] = {
#define X(name, wire) [name] = wire,
	FAULT_ACTIONS(X)
#undef X
};

struct armed_fault {
	char name[MAX_NAME];
	enum fault_action action;
	int64_t nth; /* 0: every hit */
	atomic_llong hits;
};

/*
 * The seam reaches into every room, and a plan handed through all of them would be worse than this.
 */
static struct armed_fault armed[MAX_ARMED];
static atomic_uint armed_count;
static atomic_int trace_fd = -1;

/* False when no point of that name exists; *fence and *plain tell which kinds do. */
static bool find_point(const char *name, bool *fence, bool *plain)
{
	*fence = *plain = false;
	for (const struct fault_point *const *p = __start_berth_faults; p < __stop_berth_faults;
	     p++) {
		if (streq((*p)->name, name))
			*((*p)->fence ? fence : plain) = true;
	}
	return *fence || *plain;
}

static bool parse_action(const char *word, enum fault_action *action)
{
	for (unsigned i = 0; i < ACT_COUNT; i++) {
		if (streq(word, action_words[i])) {
			*action = (enum fault_action)i;
			return true;
		}
	}
	return false;
}

/* One "point[@N]:action", in place. Point names may hold colons, so the last one separates. */
static int parse_entry(char *entry, struct armed_fault *fault, struct error *err)
{
	char *colon = strrchr(entry, ':');
	bool fence, plain;

	if (!colon || colon == entry)
		return error_set(err, ERR_VALIDATION, "fault \"%.100s\": want point:action", entry);
	*colon = '\0';

	char *at = strrchr(entry, '@');

	fault->nth = 0;
	if (at) {
		*at = '\0';
		if (!parse_i64(at + 1, 1, INT64_MAX, &fault->nth))
			return error_set(err, ERR_VALIDATION,
					 "fault \"%.100s\": want a number after @", entry);
	}
	if (!parse_action(colon + 1, &fault->action))
		return error_set(err, ERR_VALIDATION, "fault \"%.100s\": no action \"%.20s\"",
				 entry, colon + 1);
	if (strlen(entry) >= MAX_NAME || !find_point(entry, &fence, &plain))
		return error_set(err, ERR_VALIDATION, "fault \"%.100s\": no such point", entry);
	if (fault->action == ACT_SKIP ? !fence : !plain)
		return error_set(err, ERR_VALIDATION, "fault \"%.100s\": %s does not apply to it",
				 entry, action_words[fault->action]);
	memcpy(fault->name, entry, strlen(entry) + 1);
	atomic_store(&fault->hits, 0);
	return 0;
}

int fault_init(const char *spec, struct error *err)
{
	_cleanup_free_ char *copy = xstrdup(spec ? spec : "");
	char *rest = copy, *entry;
	unsigned count = 0;

	atomic_store(&armed_count, 0);
	if (!*copy)
		return 0;
	while ((entry = strsep(&rest, ","))) {
		if (count == MAX_ARMED)
			return error_set(err, ERR_VALIDATION, "more than %d faults", MAX_ARMED);
		if (parse_entry(entry, &armed[count], err) < 0)
			return -1;
		count++;
	}
	atomic_store(&armed_count, count);
	return 0;
}

int fault_trace(const char *path, struct error *err)
{
	int fd = -1, old;

	if (path) {
		fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0)
			return error_errno(err, errno, "opening the trace of faults %s", path);
	}
	old = atomic_exchange(&trace_fd, fd);
	close_fdp(&old);
	return 0;
}

/* In one write, so that lines of several threads never mix, and before the act that may kill. */
static void trace(const struct fault_point *point)
{
	int fd = atomic_load_explicit(&trace_fd, memory_order_relaxed), saved = errno;
	char line[MAX_NAME + 1];
	size_t n = strnlen(point->name, MAX_NAME);

	if (fd < 0)
		return;
	memcpy(line, point->name, n);
	line[n++] = '\n';
	while (write(fd, line, n) < 0 && errno == EINTR)
		;
	errno = saved;
}

/*
 * The entry of this name that fires now. Every entry of the name counts the hit, also behind a
 * match.
 */
static const struct armed_fault *count_hit(const struct fault_point *point, bool skip)
{
	unsigned count = atomic_load_explicit(&armed_count, memory_order_acquire);
	const struct armed_fault *fires = NULL;

	for (unsigned i = 0; i < count; i++) {
		struct armed_fault *f = &armed[i];

		if ((f->action == ACT_SKIP) != skip || !streq(f->name, point->name))
			continue;

		long long hit = atomic_fetch_add(&f->hits, 1) + 1;

		if (!fires && (!f->nth || hit == f->nth))
			fires = f;
	}
	return fires;
}

int fault_hit(const struct fault_point *point, struct error *err)
{
	const struct armed_fault *fault;

	trace(point);
	fault = count_hit(point, false);
	if (!fault)
		return 0;
	if (fault->action == ACT_KILL)
		kill(getpid(), SIGKILL);
	/* SIGKILL to oneself may take a moment in a threaded program; nothing may happen in it. */
	if (fault->action != ACT_ERROR) {
		for (;;)
			pause();
	}
	log_warn("fault %s: error", point->name);
	return error_set(err, ERR_FAULT, "fault injected at %s", point->name);
}

bool fault_skips(const struct fault_point *point)
{
	return count_hit(point, true) != NULL;
}

static const struct fault_point **sorted;
static size_t sorted_count;
static pthread_once_t sorted_once = PTHREAD_ONCE_INIT;

/* By name, fences first among equals: the one that is kept then tells whether there is a fence. */
static int compare_points(const void *a, const void *b)
{
	const struct fault_point *x = *(const struct fault_point *const *)a;
	const struct fault_point *y = *(const struct fault_point *const *)b;
	int order = strcmp(x->name, y->name);

	return order ? order : (int)y->fence - (int)x->fence;
}

static void sort_points(void)
{
	size_t n = 0;

	for (const struct fault_point *const *p = __start_berth_faults; p < __stop_berth_faults;
	     p++) {
		sorted = xreallocarray(sorted, n + 1, sizeof(*sorted));
		sorted[n++] = *p;
	}
	if (n)
		qsort(sorted, n, sizeof(*sorted), compare_points);
	for (size_t i = 0; i < n; i++) {
		if (!sorted_count || !streq(sorted[sorted_count - 1]->name, sorted[i]->name))
			sorted[sorted_count++] = sorted[i];
	}
}

size_t fault_count(void)
{
	pthread_once(&sorted_once, sort_points);
	return sorted_count;
}

const char *fault_name(size_t index)
{
	return index < fault_count() ? sorted[index]->name : NULL;
}

bool fault_is_fence(size_t index)
{
	return index < fault_count() && sorted[index]->fence;
}
