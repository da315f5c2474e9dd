/*
 * What staging takes of memory, in the server and in the relay and its children together: the same
 * however much there is to stage. The bounds are well below what is staged here, and would be
 * passed by anything that keeps a part of it.
 */
#include "../place/tree_place.h"
#include "workspace/workspace.h"

#define LARGE_MB 256
#define FILES 10000
#define PER_DIRECTORY 200
/* The promise is 64 MB for 4 GB, or for 100,000 files. */
#define BOUND_KB ((size_t)32 << 10)

struct memory {
	struct trees *trees;
	struct workspace_engine engine;
	struct workspace_state state;
	pid_t keeper;
	size_t idle_kb, peak_kb, looks;
};

static size_t resident_kb(pid_t pid)
{
	unsigned long size = 0, resident = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return 0; /* it has ended */
	if (fscanf(f, "%lu %lu", &size, &resident) != 2)
		resident = 0;
	fclose(f);
	return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE) / 1024;
}

/* Of everything the process has started. */
static size_t children_kb(pid_t pid)
{
	char path[64];
	size_t kb = 0;
	int child;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	f = fopen(path, "re");
	while (f && fscanf(f, "%d", &child) == 1)
		kb += resident_kb(child) + children_kb(child);
	if (f)
		fclose(f);
	return kb;
}

static size_t all_kb(const struct memory *m)
{
	return resident_kb(getpid()) + children_kb(m->keeper);
}

static void look(void *arg, const struct workspace_progress *now)
{
	struct memory *m = arg;

	(void)now;
	if (m->keeper > 0)
		m->peak_kb = MAX_OF(m->peak_kb, all_kb(m));
	m->looks++;
}

static int memory_setup(void **state)
{
	struct memory *m = calloc(1, sizeof(*m));
	char data[128];
	void *trees;

	assert_non_null(m);
	trees_setup(&trees);
	m->trees = trees;
	snprintf(data, sizeof(data), "%s/data", m->trees->t->dir->path);
	assert_int_equal(mkdir(data, 0700), 0);
	must(workspace_engine_open(&m->engine, data, NULL, why));
	*state = m;
	return 0;
}

static int memory_teardown(void **state)
{
	struct memory *m = *state;
	void *trees = m->trees;

	workspace_state_clear(&m->state);
	workspace_engine_close(&m->engine);
	free(m);
	return trees_teardown(&trees);
}

static void stage(struct memory *m)
{
	struct workspace_act act = {
		.place = &m->trees->in,
		.place_root = "/work",
		.progress = look,
		.progress_arg = m,
		.cancel_fd = -1,
	};
	char id[ID_SIZE], path[128];
	struct workspace_request wish = {
		.run_id = id, .path = path, .mode = MODE_COPY, .takes_relay = true
	};

	id_new(id);
	snprintf(path, sizeof(path), "%s/host", m->trees->t->dir->path);
	workspace_state_clear(&m->state);
	must(workspace_prepare(&m->engine, &wish, &m->state, why));
	must(workspace_stage(&m->engine, &m->state, &act, why));
}

/* One small stage first: what is loaded and started once is no part of it. */
static void begin(struct memory *m)
{
	assert_int_equal(file_replace(m->trees->host_fd, "first", "1", 1, 0644, NULL), 0);
	stage(m);
	m->keeper = keeper_pid(m->trees->t);
	assert_true(m->keeper > 0);
	m->idle_kb = all_kb(m);
	assert_true(children_kb(m->keeper) > 0);
	m->peak_kb = m->looks = 0;
}

static void check(struct memory *m)
{
	assert_true(m->peak_kb > m->idle_kb);
	if (m->peak_kb - m->idle_kb > BOUND_KB)
		fail_msg("%zu kB above idle", m->peak_kb - m->idle_kb);
}

static void a_large_file_is_staged_in_little_memory(void **state)
{
	struct memory *m = *state;
	_cleanup_free_ char *data = xmalloc(1 << 20);
	_cleanup_close_ int fd = -1;
	struct stat st;

	begin(m);
	random_bytes(data, 1 << 20);
	fd = openat(m->trees->host_fd, "large", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	for (int i = 0; i < LARGE_MB; i++)
		assert_int_equal(fd_write_all(fd, data, 1 << 20, NULL), 0);
	stage(m);
	assert_true(m->looks > 32);
	check(m);
	assert_int_equal(fstatat(m->trees->root_fd, "work/large", &st, 0), 0);
	assert_int_equal(st.st_size, (off_t)LARGE_MB << 20);
}

static void many_files_are_staged_in_little_memory(void **state)
{
	struct memory *m = *state;

	begin(m);
	for (int i = 0; i < FILES; i++) {
		char path[64];
		int fd;

		snprintf(path, sizeof(path), "directory-%04d", i / PER_DIRECTORY);
		if (i % PER_DIRECTORY == 0)
			assert_int_equal(mkdirat(m->trees->host_fd, path, 0755), 0);
		snprintf(path, sizeof(path), "directory-%04d/a-file-%06d", i / PER_DIRECTORY, i);
		fd = openat(m->trees->host_fd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		assert_int_equal(write(fd, path, strlen(path)), (ssize_t)strlen(path));
		close(fd);
	}
	stage(m);
	stage(m); /* nothing changed: another way through it all */
	assert_true(m->looks > 50);
	check(m);
}

#define with_memory(test) cmocka_unit_test_setup_teardown(test, memory_setup, memory_teardown)

/* Under a sanitizer: what was given back is not to be kept for long, here and in the relay. */
#define QUARANTINE "quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return QUARANTINE;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_memory(a_large_file_is_staged_in_little_memory),
		with_memory(many_files_are_staged_in_little_memory),
	};

	setenv("ASAN_OPTIONS", QUARANTINE, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
