/*
 * A workspace, a "place" that is a directory beside it, and a store of results, for tests of
 * collecting. Staging is a copy, fetching a comparison of directories: no relay is needed, and
 * nothing of the engine that is tried is used to make its own input.
 */
#pragma once

#include "../base/tempdir.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include "base/fd.h"
#include "base/sha256.h"
#include "base/text.h"
#include "workspace/apply.h"
#include "workspace/manifest.h"
#include "workspace/results.h"

#define must(call, err)                                                                            \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s", #call, (err)->message);                                 \
	} while (0)

struct files {
	char path[64];
	int fd, host_fd, place_fd, run_fd;
	struct results results;
	struct workspace_state state;
};

struct told {
	char path[512], beside[600], reason[256];
	enum change_kind kind;
	enum change_fate fate;
};
struct told_list {
	struct told items[512];
	size_t count;
};

static inline int told_add(void *arg, const struct change *change, struct error *err)
{
	struct told_list *list = arg;

	(void)err;
	assert_true(list->count < ARRAY_SIZE(list->items));

	struct told *t = &list->items[list->count++];

	snprintf(t->path, sizeof(t->path), "%s", change->entry.path);
	snprintf(t->beside, sizeof(t->beside), "%s", change->beside ? change->beside : "");
	snprintf(t->reason, sizeof(t->reason), "%s", change->reason ? change->reason : "");
	t->kind = change->kind;
	t->fate = change->fate;
	return 0;
}

static inline const struct told *told_of(const struct told_list *list, const char *path)
{
	for (size_t i = 0; i < list->count; i++) {
		if (streq(list->items[i].path, path))
			return &list->items[i];
	}
	return NULL;
}

/* --- files by name --- */

static inline void put_bytes(int dir, const char *path, const void *data, size_t len, mode_t mode)
{
	int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC, mode);

	if (fd < 0)
		fail_msg("write %s: %s", path, strerror(errno));
	assert_int_equal(write(fd, data, len), (ssize_t)len);
	fchmod(fd, mode);
	close(fd);
}

static inline void put_text(int dir, const char *path, const char *text)
{
	put_bytes(dir, path, text, strlen(text), 0644);
}

/* As most editors save: a new file under the name. */
static inline void save_text(int dir, const char *path, const char *text)
{
	char temp[600];

	snprintf(temp, sizeof(temp), "%s~", path);
	put_text(dir, temp, text);
	assert_return_code(renameat(dir, temp, dir, path), errno);
}

static inline char *get_text(int dir, const char *path)
{
	struct buf text = { 0 };
	struct error err = { 0 };

	if (file_read(dir, path, &text, 1 << 20, &err) < 0) {
		error_clear(&err);
		return NULL;
	}
	return buf_steal(&text);
}

static inline void expect_text(int dir, const char *path, const char *want)
{
	char *text = get_text(dir, path);

	if (!text)
		fail_msg("%s is not there", path);
	assert_string_equal(text, want);
	free(text);
}

static inline bool exists(int dir, const char *path)
{
	struct stat st;

	return fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static inline void run_command(char *const *argv)
{
	pid_t pid;
	int status;

	/* Not fork: the sanitizers' memory makes it dear. */
	assert_int_equal(posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ), 0);
	assert_true(waitpid(pid, &status, 0) == pid);
	assert_int_equal(status, 0);
}

/* --- life --- */

static inline int open_made(int dir, const char *name)
{
	if (mkdirat(dir, name, 0755) < 0)
		assert_int_equal(errno, EEXIST);

	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static inline void files_open(struct files *f, const char *parent)
{
	struct error err = { 0 };
	char path[128];

	memset(f, 0, sizeof(*f));
	snprintf(f->path, sizeof(f->path), "%s/berth-files-XXXXXX", parent);
	assert_non_null(mkdtemp(f->path));
	f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	f->host_fd = open_made(f->fd, "host");
	f->place_fd = open_made(f->fd, "place");
	snprintf(path, sizeof(path), "%s/results", f->path);
	must(results_open(&f->results, path, &err), &err);
	id_new(f->state.run_id);
	f->state.path = xasprintf("%s/host", f->path);
	f->state.mode = MODE_COPY;
	f->state.phase = PHASE_PREPARED;
	must(workspace_state_save(&f->results, &f->state, &err), &err);
	must(results_dir(&f->results, f->state.run_id, false, &f->run_fd, &err), &err);
}

static inline void files_close(struct files *f)
{
	char *argv[] = { (char *)"rm", (char *)"-rf", f->path, NULL };

	run_command(argv);
	close(f->fd);
	close(f->host_fd);
	close(f->place_fd);
	close(f->run_fd);
	results_close(&f->results);
	workspace_state_clear(&f->state);
}

static inline int files_setup(void **state)
{
	struct files *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	files_open(f, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	*state = f;
	return 0;
}

static inline int files_teardown(void **state)
{
	files_close(*state);
	free(*state);
	return 0;
}
#define with_files(test) cmocka_unit_test_setup_teardown(test, files_setup, files_teardown)

/* --- staging and fetching --- */

static inline void hash_file(int dir_fd, const char *name, struct tree_entry *entry)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct sha256 hash;
	uint8_t chunk[65536];
	ssize_t n;

	assert_true(fd >= 0);
	sha256_init(&hash);
	while ((n = read(fd, chunk, sizeof(chunk))) > 0)
		sha256_update(&hash, chunk, (size_t)n);
	close(fd);
	sha256_final(&hash, entry->sha256);
	entry->flags |= TREE_HAS_HASH;
}

static inline int snapshot_add(void *arg, const struct tree_entry *found, int dir_fd,
			       const char *name, struct error *err)
{
	struct tree_entry entry = *found;

	if (entry.type == TREE_SPECIAL)
		return 0;
	if (entry.type == TREE_FILE)
		hash_file(dir_fd, name, &entry);
	return manifest_add(arg, &entry, err);
}

static inline void snapshot(int root_fd, int dir_fd, const char *name)
{
	const struct tree_walk_options options = { .skip_git = true };
	struct manifest_writer *w;
	struct error err = { 0 };

	must(manifest_create(dir_fd, name, &w, &err), &err);
	must(tree_walk(root_fd, &options, snapshot_add, w, &err), &err);
	must(manifest_commit(w, &err), &err);
}

static inline void copy_tree(const struct files *f)
{
	char from[128], to[128];
	char *argv[] = { (char *)"cp", (char *)"-a", from, to, NULL };

	snprintf(from, sizeof(from), "%s/host/.", f->path);
	snprintf(to, sizeof(to), "%s/place", f->path);
	run_command(argv);
}

static inline void files_stage(struct files *f)
{
	snapshot(f->host_fd, f->run_fd, RESULTS_BASE);
	copy_tree(f);
	snapshot(f->place_fd, f->run_fd, RESULTS_PLACE);
	f->state.phase = PHASE_STAGED;
}

struct fetch {
	struct files *f;
	struct manifest *before;
	struct manifest_cursor cursor;
	struct tree_entry next;
	bool more;
	struct manifest_writer *out;
};

static inline void keep_blob(struct fetch *x, int dir_fd, const char *name,
			     struct tree_entry *entry)
{
	struct blob_writer *w;
	struct error err = { 0 };
	uint8_t chunk[65536], hash[TREE_HASH_SIZE];
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	must(blob_create(x->f->run_fd, &w, &err), &err);
	while ((n = read(fd, chunk, sizeof(chunk))) > 0)
		must(blob_append(w, chunk, (size_t)n, &err), &err);
	close(fd);
	must(blob_commit(w, hash, &err), &err);
	assert_memory_equal(hash, entry->sha256, TREE_HASH_SIZE);
}

static inline int emit_gone(struct fetch *x, const char *until, size_t len, struct error *err)
{
	while (x->more &&
	       (!until || tree_path_compare(x->next.path, x->next.path_len, until, len) < 0)) {
		struct tree_entry gone = { .path = x->next.path, .path_len = x->next.path_len };

		if (manifest_add(x->out, &gone, err) < 0)
			return -1;
		x->more = manifest_next(&x->cursor, &x->next);
	}
	return 0;
}

static inline int fetch_entry(void *arg, const struct tree_entry *found, int dir_fd,
			      const char *name, struct error *err)
{
	struct fetch *x = arg;
	struct tree_entry entry = *found;
	bool same = false;

	if (entry.type == TREE_SPECIAL)
		return 0;
	if (emit_gone(x, entry.path, entry.path_len, err) < 0)
		return -1;
	if (entry.type == TREE_FILE)
		hash_file(dir_fd, name, &entry);
	if (x->more && x->next.path_len == entry.path_len &&
	    memcmp(x->next.path, entry.path, entry.path_len) == 0) {
		same = tree_entry_same_content(&x->next, &entry);
		x->more = manifest_next(&x->cursor, &x->next);
	}
	if (same)
		return 0;
	if (entry.type == TREE_FILE)
		keep_blob(x, dir_fd, name, &entry);
	entry.mode &= 0777;
	return manifest_add(x->out, &entry, err);
}

static inline void files_fetch(struct files *f)
{
	const struct tree_walk_options options = { .skip_git = true };
	struct fetch x = { .f = f };
	struct error err = { 0 };

	must(manifest_open(f->run_fd, RESULTS_PLACE, &x.before, &err), &err);
	x.cursor.m = x.before;
	x.more = manifest_next(&x.cursor, &x.next);
	must(manifest_create(f->run_fd, RESULTS_CHANGES, &x.out, &err), &err);
	must(tree_walk(f->place_fd, &options, fetch_entry, &x, &err), &err);
	must(emit_gone(&x, NULL, 0, &err), &err);
	must(manifest_commit(x.out, &err), &err);
	manifest_close(x.before);
	f->state.phase = PHASE_FETCHED;
}

/* For results that no honest place would give. */
static inline void files_forge(struct files *f, const struct tree_entry *entries, size_t count)
{
	struct manifest_writer *w;
	struct error err = { 0 };

	must(manifest_create(f->run_fd, RESULTS_CHANGES, &w, &err), &err);
	for (size_t i = 0; i < count; i++)
		must(manifest_add(w, &entries[i], &err), &err);
	must(manifest_commit(w, &err), &err);
	f->state.phase = PHASE_FETCHED;
}

static inline struct tree_entry forge_file(struct files *f, const char *path, const char *text)
{
	struct tree_entry entry = { .path = path,
				    .path_len = (uint32_t)strlen(path),
				    .type = TREE_FILE,
				    .mode = 0644,
				    .size = strlen(text),
				    .flags = TREE_HAS_HASH };
	struct blob_writer *w;
	struct error err = { 0 };

	must(blob_create(f->run_fd, &w, &err), &err);
	must(blob_append(w, text, strlen(text), &err), &err);
	must(blob_commit(w, entry.sha256, &err), &err);
	return entry;
}

static inline void files_apply(struct files *f, struct apply_options *options,
			       struct told_list *told, struct apply_report *report)
{
	struct apply_options plain = { .cancel_fd = -1 };
	struct apply_report unused;
	struct error err = { 0 };

	if (told)
		told->count = 0;
	must(results_apply(&f->results, &f->state, options ? options : &plain,
			   told ? told_add : NULL, told, report ? report : &unused, &err),
	     &err);
}

/* NAME.berth-xxxxxxxx of this run. */
static inline const char *beside_name(const struct files *f, const char *path, char out[600])
{
	snprintf(out, 600, "%s.berth-%s", path, f->state.run_id + 28);
	return out;
}
