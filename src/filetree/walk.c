/*
 * The walk is a loop over a stack of directories, so that a deep tree needs no deep stack. A level
 * keeps the sorted names of its directory; memory of a level is used again by the next directory
 * at that depth. Few descriptors stay open: those of the levels far above are given back and the
 * directory is opened again, beneath the root and without links, on the way up. If it is not the
 * same one any more, the rest of it has vanished.
 */
#include "filetree/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/text.h"

#define DEFAULT_ENTRIES 4000000
#define DEFAULT_DEPTH 1000
#define OPEN_LEVELS 32
#define READ_SIZE ((size_t)32768)
/* How often something may turn into something else while it is looked at. */
#define TRIES 3

struct level {
	int fd; /* -1 while given back */
	dev_t dev;
	ino_t ino;
	size_t path_len;
	bool left_out; /* by rules; only what is kept counts in it */
	bool no_rules; /* a repository's own files: rules are for what it is about */
	struct buf text;
	const char **names; /* sorted, into text */
	size_t count, cap, next;
};

struct walk {
	int root_fd; /* borrowed */
	const struct tree_walk_options *options;
	tree_walk_fn *fn;
	void *arg;
	struct level **levels;
	size_t depth, made; /* levels in use, levels with memory */
	uint64_t left;      /* entries that may still come */
	uint32_t max_depth;
	char path[TREE_PATH_MAX + 1];
	char target[TREE_PATH_MAX + 1];
	char block[READ_SIZE] __attribute__((aligned(8)));
};

static void walk_free(struct walk *w)
{
	for (size_t i = 0; i < w->made; i++) {
		if (i < w->depth && w->levels[i]->fd >= 0)
			close(w->levels[i]->fd);
		buf_free(&w->levels[i]->text);
		free(w->levels[i]->names);
		free(w->levels[i]);
	}
	for (; w->options->ignore && w->depth > 0; w->depth--)
		ignore_leave(w->options->ignore);
	free(w->levels);
}

struct linux_dirent {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_self_or_parent(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

static void index_names(struct level *level)
{
	const char *p = buf_str(&level->text);

	if (level->cap < level->count) {
		level->cap = level->count;
		level->names = xreallocarray(level->names, level->cap, sizeof(*level->names));
	}
	for (size_t i = 0; i < level->count; i++, p += strlen(p) + 1)
		level->names[i] = p;
	if (level->count > 1)
		qsort(level->names, level->count, sizeof(*level->names), by_bytes);
}

static int too_many(const struct walk *w, struct error *err)
{
	return error_set(err, ERR_TOO_LARGE,
			 "there are more than %llu files and directories: leave some out by a "
			 ".berthignore",
			 (unsigned long long)(w->options->max_entries ? w->options->max_entries
								      : DEFAULT_ENTRIES));
}

static int read_names(struct walk *w, struct level *level, struct error *err)
{
	buf_reset(&level->text);
	level->count = level->next = 0;
	for (;;) {
		long n = syscall(SYS_getdents64, level->fd, w->block, sizeof(w->block));

		if (n < 0 && errno == ENOENT)
			break; /* the directory was removed */
		if (n < 0)
			return error_errno(err, errno, "list %s", w->path);
		if (n == 0)
			break;
		for (long at = 0; at < n;) {
			const struct linux_dirent *d = (const void *)(w->block + at);

			at += d->reclen;
			if (is_self_or_parent(d->name))
				continue;
			/* Rules may leave most of them out, so a directory may be somewhat larger
			 * than the tree; its memory has a bound all the same. */
			if (++level->count > w->left + DEFAULT_ENTRIES)
				return too_many(w, err);
			buf_append(&level->text, d->name, strlen(d->name) + 1);
		}
	}
	index_names(level);
	return 0;
}

static struct level *push(struct walk *w)
{
	if (w->depth == w->made) {
		w->levels = xreallocarray(w->levels, w->made + 1, sizeof(*w->levels));
		w->levels[w->made++] = xcalloc(1, sizeof(struct level));
	}
	if (w->depth >= OPEN_LEVELS)
		close_fdp(&w->levels[w->depth - OPEN_LEVELS]->fd);
	return w->levels[w->depth++];
}

static void pop(struct walk *w)
{
	close_fdp(&w->levels[--w->depth]->fd);
	if (w->options->ignore)
		ignore_leave(w->options->ignore);
}

/* Takes the descriptor. The directory's path is in w->path. */
static int enter(struct walk *w, int fd, const struct stat *st, const struct level *above,
		 size_t path_len, bool left_out, struct error *err)
{
	bool no_rules = above && (above->no_rules || streq(above->names[above->next - 1], ".git"));

	if (w->depth > w->max_depth) {
		close(fd);
		return error_set(err, ERR_TOO_LARGE, "directories are nested deeper than %u",
				 w->max_depth);
	}
	if (w->options->ignore && ignore_enter(w->options->ignore, w->path, fd, err) < 0) {
		close(fd);
		return -1;
	}

	struct level *level = push(w);

	level->fd = fd;
	level->dev = st->st_dev;
	level->ino = st->st_ino;
	level->path_len = path_len;
	level->left_out = left_out;
	level->no_rules = no_rules;
	return read_names(w, level, err);
}

/* Back in a level whose descriptor was given back. False: it is not there any more. */
static bool reopen(struct walk *w, struct level *level)
{
	struct stat st;

	if (level->fd >= 0)
		return true;
	w->path[level->path_len] = '\0';
	level->fd = path_open_dir(w->root_fd, level->path_len ? w->path : ".");
	if (level->fd < 0)
		return false;
	if (fstat(level->fd, &st) == 0 && st.st_dev == level->dev && st.st_ino == level->ino)
		return true;
	close_fdp(&level->fd);
	return false;
}

static bool is_left_out(const struct walk *w, const struct level *level, const char *name,
			size_t len, bool is_dir)
{
	const struct tree_walk_options *o = w->options;

	if (!o->ignore || level->left_out)
		return level->left_out;
	if (level->no_rules || streq(name, ".git"))
		return false;
	if (o->hides && o->hides(o->arg, w->path, len, is_dir))
		return true;
	return ignore_matches(w->options->ignore, w->path, len, is_dir);
}

static bool is_kept(const struct walk *w, size_t len)
{
	return w->options->keeps && w->options->keeps(w->options->arg, w->path, len);
}

static void tell_hidden(const struct walk *w, const struct level *level, size_t len, bool is_dir)
{
	const struct tree_walk_options *o = w->options;
	_cleanup_buf_ struct buf rules = { 0 };
	const char *name = NULL;

	if (!o->hidden)
		return;
	if (!level->left_out) {
		name = o->hides ? o->hides(o->arg, w->path, len, is_dir) : NULL;
		ignore_reason(o->ignore, w->path, len, is_dir, &rules);
		/* Berth's own directory is no file of anybody's. */
		if (!name && !rules.len)
			return;
	}
	o->hidden(o->hidden_arg, w->path, len, is_dir, name, rules.len ? buf_str(&rules) : NULL);
}

static int report(struct walk *w, const struct level *level, const char *name,
		  struct tree_entry *entry, size_t len, struct error *err)
{
	if (w->left-- == 0)
		return too_many(w, err);
	entry->path = w->path;
	entry->path_len = (uint32_t)len;
	return w->fn(w->arg, entry, level->fd, name, err);
}

/* 1: it is something else now, look again. */
static int visit_dir(struct walk *w, struct level *level, const char *name, size_t len,
		     const struct stat *st, bool left_out, struct error *err)
{
	_cleanup_close_ int fd = path_open_dir(level->fd, name);
	struct tree_entry entry = { 0 };

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
		return 1;
	if (fd < 0 && errno != EACCES && errno != EPERM)
		return error_errno(err, errno, "open %s", w->path);
	tree_entry_from_stat(st, &entry);
	if (fd < 0)
		entry.flags |= TREE_UNREADABLE;
	if (report(w, level, name, &entry, len, err) < 0)
		return -1;
	return fd < 0 ? 0 : enter(w, steal_fd(&fd), st, level, len, left_out, err);
}

static int visit_link(struct walk *w, struct level *level, const char *name, size_t len,
		      const struct stat *st, struct error *err)
{
	struct tree_entry entry = { 0 };
	ssize_t n = readlinkat(level->fd, name, w->target, sizeof(w->target));

	if (n <= 0)
		return 1;
	n = MIN_OF(n, TREE_PATH_MAX);
	w->target[n] = '\0';
	tree_entry_from_stat(st, &entry);
	entry.target = w->target;
	entry.target_len = (uint32_t)n;
	return report(w, level, name, &entry, len, err);
}

static int look(struct walk *w, struct level *level, const char *name, size_t len,
		struct error *err)
{
	struct tree_entry entry = { 0 };
	struct stat st;

	if (fstatat(level->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT || errno == ENOTDIR)
			return 0;
		/* A directory that may be listed but not searched: what is in it is not known. */
		if (errno != EACCES)
			return error_errno(err, errno, "look at %s", w->path);
		entry.type = TREE_SPECIAL;
		entry.flags = TREE_UNREADABLE;
		return report(w, level, name, &entry, len, err);
	}

	bool left_out = is_left_out(w, level, name, len, S_ISDIR(st.st_mode));

	if (left_out && !is_kept(w, len)) {
		tell_hidden(w, level, len, S_ISDIR(st.st_mode));
		return 0;
	}
	if (S_ISDIR(st.st_mode))
		return visit_dir(w, level, name, len, &st, left_out, err);
	if (S_ISLNK(st.st_mode))
		return visit_link(w, level, name, len, &st, err);
	tree_entry_from_stat(&st, &entry);
	return report(w, level, name, &entry, len, err);
}

static int visit(struct walk *w, struct level *level, const char *name, struct error *err)
{
	size_t start = level->path_len ? level->path_len + 1 : 0;
	size_t name_len = strlen(name);

	if (w->depth == 1 && w->options->skip_git && streq(name, ".git"))
		return 0;
	if (start + name_len > TREE_PATH_MAX)
		return error_set(err, ERR_TOO_LARGE, "a path is longer than %d bytes",
				 TREE_PATH_MAX);
	if (level->path_len)
		w->path[level->path_len] = '/';
	memcpy(w->path + start, name, name_len + 1);

	int rc = 1;

	for (int i = 0; rc > 0 && i < TRIES; i++)
		rc = look(w, level, name, start + name_len, err);
	return rc < 0 ? -1 : 0;
}

static int walk_tree(struct walk *w, struct error *err)
{
	int fd = path_open_dir(w->root_fd, ".");
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		int errnum = errno;

		close_fdp(&fd);
		return error_errno(err, errnum, "open the directory");
	}
	if (enter(w, fd, &st, NULL, 0, false, err) < 0)
		return -1;
	while (w->depth > 0) {
		struct level *level = w->levels[w->depth - 1];

		if (level->next == level->count || !reopen(w, level))
			pop(w);
		else if (visit(w, level, level->names[level->next++], err) < 0)
			return -1;
	}
	return 0;
}

int tree_walk(int root_fd, const struct tree_walk_options *options, tree_walk_fn *fn, void *arg,
	      struct error *err)
{
	_cleanup_free_ struct walk *w = xcalloc(1, sizeof(*w));

	w->root_fd = root_fd;
	w->options = options;
	w->fn = fn;
	w->arg = arg;
	w->left = options->max_entries ? options->max_entries : DEFAULT_ENTRIES;
	w->max_depth = options->max_depth ? options->max_depth : DEFAULT_DEPTH;

	int rc = walk_tree(w, err);

	walk_free(w);
	return rc;
}
