#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/text.h"
#include "workspace/collect_internal.h"

/* How often a file is read that changes while it is. */
#define TRIES 3

struct get {
	struct fetch *f;
	struct manifest_cursor ask, take;
	struct manifest_writer *changes; /* NULL: files of the repository */
	uint64_t planned;                /* bytes asked for and come */
	struct blob_writer *blob;
	int git_fd, fd; /* <run>/git, and the file being written to it */
	uint64_t size;  /* so far */
	bool again;     /* it changed while it was read: once more from here */
	int tries;
};

/* The same answer whenever it is asked in the same order: `ask` and `take` both rely on it. */
static bool fits(const struct get *g, const struct tree_entry *e)
{
	return e->size <= g->f->max_bytes && g->planned <= g->f->max_bytes - e->size;
}

static bool next_file(void *arg, const char **path)
{
	struct get *g = arg;
	struct tree_entry e;

	while (manifest_next(&g->ask, &e)) {
		if (e.type != TREE_FILE || !fits(g, &e))
			continue;
		g->planned += e.size;
		*path = e.path;
		return true;
	}
	return false;
}

/* An empty file says that it was there and is gone. */
static int note_gone_in_git(struct get *g, const char *path)
{
	_cleanup_close_ int fd =
		openat(g->git_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd >= 0 ? 0 : -1;
}

static int make_parent(struct get *g, const char *path, struct error *err)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir = slash ? xstrndup(path, (size_t)(slash - path)) : NULL;

	return dir ? dir_make(g->git_fd, dir, 0700, err) : 0;
}

/* What needs no content goes as it is. */
static int pass(struct get *g, struct tree_entry *e, struct error *err)
{
	if (e->type == TREE_FILE) {
		fetch_refuse(g->f, e->path, COLLECT_TOO_LARGE);
		return 0;
	}
	if (g->changes) {
		e->links = 0;
		e->mode &= 0777;
		return manifest_add(g->changes, e, err);
	}
	if (e->type == TREE_NONE) {
		_cleanup_error_ struct error why = { 0 };

		/* Where a directory of that name came instead, that says it too. */
		if (make_parent(g, e->path, &why) == 0)
			note_gone_in_git(g, e->path);
	}
	return 0;
}

/* Everything up to the file that is coming (NULL: to the end). */
static int pass_until(struct get *g, const struct tree_entry *coming, struct tree_entry *e,
		      struct error *err)
{
	struct manifest_cursor at = g->take;

	while (manifest_next(&at, e)) {
		if (coming && e->path_len == coming->path_len &&
		    memcmp(e->path, coming->path, e->path_len) == 0)
			return 0;
		if (pass(g, e, err) < 0)
			return -1;
		g->take = at;
	}
	return coming ? error_set(err, ERR_PROTOCOL, "the place sent a file that was not requested")
		      : 0;
}

static void step(struct get *g)
{
	struct tree_entry e;

	manifest_next(&g->take, &e);
	g->tries = 0;
}

static int open_git_file(struct get *g, const char *path, struct error *err)
{
	if (make_parent(g, path, err) < 0)
		return -1;
	g->fd = openat(g->git_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
		       0600);
	return g->fd >= 0 ? 0 : error_errno(err, errno, "keep %s", path);
}

static int begin(void *arg, const struct tree_entry *entry, struct error *err)
{
	struct get *g = arg;
	struct tree_entry expected;

	if (pass_until(g, entry, &expected, err) < 0)
		return -1;
	g->size = 0;
	if (entry->type == TREE_NONE || (entry->flags & TREE_UNREADABLE)) {
		fetch_refuse(g->f, entry->path,
			     entry->type == TREE_NONE
				     ? "it vanished from the place while it was fetched"
				     : "it cannot be read in the place, or is too large");
		step(g);
		return 0;
	}
	return g->changes ? blob_create(g->f->run_fd, &g->blob, err)
			  : open_git_file(g, entry->path, err);
}

static int take_data(void *arg, const void *data, size_t len, struct error *err)
{
	struct get *g = arg;

	g->size += len;
	g->f->bytes += len;
	if (fetch_tick(g->f, err) < 0)
		return -1;
	return g->blob ? blob_append(g->blob, data, len, err) : fd_write_all(g->fd, data, len, err);
}

static int take_hole(void *arg, uint64_t len, struct error *err)
{
	struct get *g = arg;

	g->size += len;
	if (g->blob)
		return blob_hole(g->blob, len, err);
	if (lseek(g->fd, (off_t)g->size, SEEK_SET) < 0 || ftruncate(g->fd, (off_t)g->size) < 0)
		return error_errno(err, errno, "keep a file of the repository");
	return 0;
}

static void drop_file(struct get *g)
{
	blob_abandon(g->blob);
	g->blob = NULL;
	close_fdp(&g->fd);
}

static int add_change(struct get *g, const struct tree_entry *entry, struct error *err)
{
	struct tree_entry now = *entry, put, base;

	if (blob_commit(steal(g->blob), now.sha256, err) < 0)
		return -1;
	now.flags = TREE_HAS_HASH;
	now.size = g->size;
	fetch_put_before(g->f, entry, &put);
	if (put.type == TREE_FILE && put.mode == now.mode) {
		if (fetch_same_bytes(&put, &now))
			return 0;
		/* The mode is not the place's doing: the host's stays. */
		if (manifest_find(g->f->base, now.path, now.path_len, &base) &&
		    base.type == TREE_FILE)
			now.mode = base.mode;
	}
	now.mode &= 0777;
	return manifest_add(g->changes, &now, err);
}

static int end(void *arg, const struct tree_entry *entry, bool changed, struct error *err)
{
	struct get *g = arg;

	if (changed && ++g->tries < TRIES) {
		drop_file(g);
		g->again = true;
		return error_set(err, ERR_CONFLICT, "%s changed while it was read", entry->path);
	}
	if (changed) {
		fetch_refuse(g->f, entry->path, "it kept changing while it was read");
		drop_file(g);
		step(g);
		return 0;
	}
	if (g->changes ? add_change(g, entry, err) < 0 : fd_sync(g->fd, err) < 0)
		return -1;
	close_fdp(&g->fd);
	step(g);
	g->f->files++;
	return FAULT_HERE("workspace.fetch.file", err);
}

static int get_rest(struct get *g, struct error *err)
{
	const struct place_get get = {
		.root = g->f->state->place_root,
		.next = next_file,
		.begin = begin,
		.data = take_data,
		.hole = take_hole,
		.end = end,
		.arg = g,
		.max_file = g->f->max_bytes,
	};
	int r;

	do {
		g->again = false;
		g->ask = g->take;
		g->planned = g->f->bytes;
		r = place_tree_get(g->f->act->place, &get, err);
		drop_file(g);
		if (r < 0 && g->again)
			error_clear(err);
	} while (r < 0 && g->again);
	return r;
}

static int open_git_dir(struct get *g, struct error *err)
{
	if (dir_remove_tree(g->f->run_fd, RESULTS_GIT, err) < 0 ||
	    dir_make(g->f->run_fd, RESULTS_GIT, 0700, err) < 0)
		return -1;
	return dir_open(g->f->run_fd, RESULTS_GIT, &g->git_fd, err);
}

int fetch_get(struct fetch *f, const char *name, struct manifest_writer *changes, struct error *err)
{
	_cleanup_manifest_ struct manifest *in = NULL;
	struct get g = { .f = f, .changes = changes, .git_fd = -1, .fd = -1 };
	struct tree_entry e;
	int r = -1;

	if (manifest_open(f->run_fd, name, &in, err) < 0 || (!changes && open_git_dir(&g, err) < 0))
		return -1;
	g.take = (struct manifest_cursor){ .m = in };
	if (get_rest(&g, err) == 0)
		r = pass_until(&g, NULL, &e, err);
	drop_file(&g);
	close_fdp(&g.git_fd);
	return r;
}
