/*
 * Contents of a layer. The place that wrote them has no process any more, but what it left is not
 * to be trusted: a name may be a fifo, a file as large as a number can be, and where the work of an
 * ordinary user's place ends no kernel promises.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/sha256.h"
#include "base/text.h"
#include "git/git.h"
#include "workspace/overlay_internal.h"

#define BLOCK_SIZE ((size_t)256 << 10)

void layer_refuse(struct layer *l, const char *path, const char *reason)
{
	if (l->refused)
		left_out_add(l->refused, path, reason);
}

int layer_tick(const struct layer *l, struct error *err)
{
	return l->cancel_fd >= 0 && latch_is_set(l->cancel_fd)
		       ? error_set(err, ERR_CANCELLED, "cancelled")
		       : 0;
}

/* Told by a callback what is there: bytes, or a hole (data NULL). */
typedef int piece_fn(void *arg, const void *data, uint64_t len, struct error *err);

static int read_piece(struct layer *l, int fd, off_t at, off_t end, piece_fn *fn, void *arg,
		      struct error *err)
{
	buf_reset(&l->block);
	buf_reserve(&l->block, BLOCK_SIZE);
	while (at < end) {
		ssize_t n = pread(fd, l->block.data, MIN_OF((size_t)(end - at), BLOCK_SIZE), at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "read a file of the layer");
		/* Shorter than it was. */
		if (n == 0)
			return fn(arg, NULL, (uint64_t)(end - at), err);
		if (fn(arg, l->block.data, (uint64_t)n, err) < 0 || layer_tick(l, err) < 0)
			return -1;
		at += n;
	}
	return 0;
}

/* `size` bytes of it, whatever it has by now. */
static int read_whole(struct layer *l, int fd, off_t size, piece_fn *fn, void *arg,
		      struct error *err)
{
	for (off_t at = 0; at < size;) {
		off_t data = lseek(fd, at, SEEK_DATA), hole;

		if (data < 0 || data > size)
			data = errno == ENXIO || data > size ? size : at;
		if (data > at && fn(arg, NULL, (uint64_t)(data - at), err) < 0)
			return -1;
		hole = data < size ? lseek(fd, data, SEEK_HOLE) : size;
		if (hole <= data || hole > size)
			hole = size;
		if (read_piece(l, fd, data, hole, fn, arg, err) < 0)
			return -1;
		at = hole;
	}
	return 0;
}

static int into_blob(void *arg, const void *data, uint64_t len, struct error *err)
{
	return data ? blob_append(arg, data, (size_t)len, err) : blob_hole(arg, len, err);
}

static int into_hash(void *arg, const void *data, uint64_t len, struct error *err)
{
	static const uint8_t zeros[4096];

	(void)err;
	if (data) {
		sha256_update(arg, data, (size_t)len);
		return 0;
	}
	for (; len > 0; len -= MIN_OF(len, sizeof(zeros)))
		sha256_update(arg, zeros, (size_t)MIN_OF(len, sizeof(zeros)));
	return 0;
}

static int hash_of(struct layer *l, int fd, off_t size, uint8_t out[TREE_HASH_SIZE],
		   struct error *err)
{
	struct sha256 hash;

	sha256_init(&hash);
	if (read_whole(l, fd, size, into_hash, &hash, err) < 0)
		return -1;
	sha256_final(&hash, out);
	return 0;
}

/* What the base had there, if that can still be known: 1 and the hash. */
static int hash_of_base(struct layer *l, const struct tree_entry *base, uint8_t out[TREE_HASH_SIZE],
			struct error *err)
{
	_cleanup_close_ int fd = -1;
	struct tree_entry now = { 0 };
	struct stat st;

	if (base->flags & TREE_HAS_HASH) {
		memcpy(out, base->sha256, TREE_HASH_SIZE);
		return 1;
	}
	fd = path_open_unlinked(l->host_fd, base->path, O_RDONLY | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return 0;
	tree_entry_from_stat(&st, &now);
	if (!tree_entry_same_state(base, &now))
		return 0;
	if (hash_of(l, fd, st.st_size, out, err) < 0)
		return -1;
	/* Changed while it was read. */
	return fstat(fd, &st) == 0 && (tree_entry_from_stat(&st, &now), true) &&
	       tree_entry_same_state(base, &now);
}

/* 1: same bytes. */
static int is_same(struct layer *l, int fd, const struct stat *st, const struct tree_entry *base,
		   struct error *err)
{
	uint8_t was[TREE_HASH_SIZE], is[TREE_HASH_SIZE];
	int known;

	if (!base || base->type != TREE_FILE || base->size != (uint64_t)st->st_size)
		return 0;
	known = hash_of_base(l, base, was, err);
	if (known <= 0)
		return known;
	if (hash_of(l, fd, st->st_size, is, err) < 0)
		return -1;
	return memcmp(was, is, sizeof(is)) == 0;
}

static int keep(struct layer *l, int fd, off_t size, struct tree_entry *entry, struct error *err)
{
	struct blob_writer *w;

	if (blob_create(l->run_fd, &w, err) < 0)
		return -1;
	if (read_whole(l, fd, size, into_blob, w, err) < 0) {
		blob_abandon(w);
		return -1;
	}
	entry->flags |= TREE_HAS_HASH;
	return blob_commit(w, entry->sha256, err);
}

/* A regular file, the one that was looked at; -1: it is refused. */
static int open_file(struct layer *l, int dir_fd, const char *name, const struct stat *st,
		     const char *path)
{
	struct stat now;
	int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd >= 0 && fstat(fd, &now) == 0 && S_ISREG(now.st_mode) && now.st_ino == st->st_ino &&
	    now.st_dev == st->st_dev)
		return fd;
	layer_refuse(l, path, fd < 0 ? "it cannot be read" : "it changed while it was read");
	close_fdp(&fd);
	return -1;
}

static bool takes_too_much(struct layer *l, const struct stat *st, const char *path)
{
	if ((uint64_t)st->st_size <= l->bytes_left) {
		l->bytes_left -= (uint64_t)st->st_size;
		return false;
	}
	layer_refuse(l, path, COLLECT_TOO_LARGE);
	return true;
}

int layer_file(struct layer *l, int dir_fd, const char *name, const struct stat *st,
	       const struct tree_entry *base, struct tree_entry *entry, struct error *err)
{
	_cleanup_close_ int fd = -1;
	bool same_mode =
		base && base->type == TREE_FILE && (base->mode & 0777) == (entry->mode & 0777);
	int same;

	if (takes_too_much(l, st, entry->path))
		return 0;
	fd = open_file(l, dir_fd, name, st, entry->path);
	if (fd < 0)
		return 0;
	same = is_same(l, fd, st, base, err);
	if (same != 0 && (same < 0 || same_mode))
		return same < 0 ? -1 : 0;
	return keep(l, fd, st->st_size, entry, err) < 0 ? -1 : 1;
}

/* ---- the repository ---- */

int layer_git_begin(struct layer *l, struct error *err)
{
	if (dir_remove_tree(l->run_fd, RESULTS_GIT, err) < 0)
		return -1;
	return mkdirat(l->run_fd, RESULTS_GIT, 0700) < 0
		       ? error_errno(err, errno, "make the directory of the repository's files")
		       : 0;
}

/* Where it goes, its directories made. The names were judged; nothing in there is a link. */
static int create_git_file(struct layer *l, const char *path, struct error *err)
{
	_cleanup_free_ char *copy = xstrdup(path);
	int dir = openat(l->run_fd, RESULTS_GIT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char *rest = copy, *name;
	int fd = -1;

	while (dir >= 0 && (name = strsep(&rest, "/"))) {
		int next;

		if (!rest) {
			fd = openat(dir, name,
				    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
			break;
		}
		if (mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
			break;
		next = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		close(dir);
		dir = next;
	}
	if (fd < 0)
		error_errno(err, errno, "keep %s", path);
	close_fdp(&dir);
	return fd;
}

static int into_file(void *arg, const void *data, uint64_t len, struct error *err)
{
	int fd = *(int *)arg;

	if (data)
		return fd_write_all(fd, data, (size_t)len, err);
	return ftruncate(fd, lseek(fd, (off_t)len, SEEK_CUR)) < 0
		       ? error_errno(err, errno, "keep a hole")
		       : 0;
}

int layer_git_file(struct layer *l, int dir_fd, const char *name, const struct stat *st,
		   const char *path, struct error *err)
{
	_cleanup_close_ int from = -1, to = -1;

	if (takes_too_much(l, st, path))
		return 0;
	from = open_file(l, dir_fd, name, st, path);
	if (from < 0)
		return 0;
	to = create_git_file(l, path, err);
	if (to < 0)
		return -1;
	return read_whole(l, from, st->st_size, into_file, &to, err);
}

static int one_gone(struct layer *l, const char *path, struct error *err)
{
	int fd;

	/* Objects are never missed: the host has them. */
	if (!git_path_comes_back(path, strlen(path)) || str_starts(path, ".git/objects/"))
		return 0;
	fd = create_git_file(l, path, err);
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

struct going {
	struct layer *layer;
	const char *below;
};

static int go(void *arg, const struct tree_entry *entry, int dir_fd, const char *name,
	      struct error *err)
{
	const struct going *g = arg;
	_cleanup_free_ char *path = NULL;

	(void)dir_fd;
	(void)name;
	if (entry->type == TREE_DIR)
		return 0;
	path = xasprintf("%s/%s", g->below, entry->path);
	return one_gone(g->layer, path, err);
}

int layer_git_gone(struct layer *l, const char *path, struct error *err)
{
	/* Of a repository that is gone as a whole that alone is told. */
	_cleanup_close_ int fd = streq(path, ".git") ? -1 : path_open_dir(l->host_fd, path);
	const struct tree_walk_options all = { 0 };
	struct going going = { l, path };

	return fd < 0 ? one_gone(l, path, err) : tree_walk(fd, &all, go, &going, err);
}
