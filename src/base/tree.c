/*
 * dir_remove_tree. What lies in a place was made by its payload, which may still be at work: names
 * may turn into links, directories may move, trees may be deeper than any stack or descriptor
 * limit, and the host's files may be bind-mounted somewhere below. So the walk is a loop over an
 * explicit stack, enters directories only by descriptor and never through a link or into another
 * mount, keeps few of them open, and checks by device and inode that the way back up leads to where
 * it came from.
 */
#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/path.h"
#include "base/text.h"

#define OPEN_LEVELS 16
/* How often a directory may be found filled again before whoever fills it has won. */
#define MAX_RESCANS 16

struct level {
	DIR *dir;   /* NULL while its descriptor is lent back to the system */
	char *name; /* in the level above */
	dev_t dev;
	ino_t ino;
	int rescans;
};

struct walk {
	int parent; /* borrowed: the directory that holds the top */
	const char *top;
	struct level *levels;
	size_t depth, cap;
};

static void walk_free(struct walk *w)
{
	for (size_t i = 0; i < w->depth; i++) {
		if (w->levels[i].dir)
			closedir(w->levels[i].dir);
		free(w->levels[i].name);
	}
	free(w->levels);
}

static int fail(const struct walk *w, int errnum, const char *verb, const char *name,
		struct error *err)
{
	return error_errno(err, errnum, "remove %s: %s %s", w->top, verb, name);
}

static int holder_fd(const struct walk *w)
{
	return w->depth ? dirfd(w->levels[w->depth - 1].dir) : w->parent;
}

/*
 * A directory its owner may not read (an overlay's work directory has mode 000) is made readable.
 */
static int open_child(int holder, const char *name)
{
	int fd = path_open_child_dir(holder, name);

	if (fd >= 0 || errno != EACCES)
		return fd;

	_cleanup_close_ int handle =
		openat(holder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st, above;
	char link[64];

	if (handle < 0 || fstat(handle, &st) < 0 || fstat(holder, &above) < 0)
		return -1;
	if (st.st_dev != above.st_dev) {
		errno = EXDEV;
		return -1;
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", handle);
	if (chmod(link, (st.st_mode & 07777) | 0700) < 0) {
		errno = EACCES;
		return -1;
	}
	return path_open_child_dir(holder, name);
}

static int descend(struct walk *w, const char *name, struct error *err)
{
	_cleanup_close_ int fd = open_child(holder_fd(w), name);
	struct stat st;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return fail(w, errno, errno == EXDEV ? "enter mount point" : "open", name, err);
	/* Deleting in it takes all three; who may not change the mode is told so by unlinkat. */
	if ((st.st_mode & 0700) != 0700)
		fchmod(fd, (st.st_mode & 07777) | 0700);

	if (w->depth == w->cap) {
		w->cap = w->cap ? w->cap * 2 : 16;
		w->levels = xreallocarray(w->levels, w->cap, sizeof(*w->levels));
	}

	DIR *dir = fdopendir(fd);

	if (!dir)
		return fail(w, errno, "read", name, err);
	fd = -1;
	if (w->depth >= OPEN_LEVELS) {
		struct level *old = &w->levels[w->depth - OPEN_LEVELS];

		if (old->dir)
			closedir(old->dir);
		old->dir = NULL;
	}
	w->levels[w->depth++] = (struct level){
		.dir = dir,
		.name = xstrdup(name),
		.dev = st.st_dev,
		.ino = st.st_ino,
	};
	return 0;
}

/* Opens the level above the last one again when its descriptor was given back. */
static int reopen_above(struct walk *w, struct error *err)
{
	struct level *last = &w->levels[w->depth - 1];
	struct level *above = w->depth > 1 ? last - 1 : NULL;
	struct stat st;

	if (!above || above->dir)
		return 0;

	_cleanup_close_ int fd = path_open_child_dir(dirfd(last->dir), "..");

	if (fd < 0 || fstat(fd, &st) < 0)
		return fail(w, errno, "leave", last->name, err);
	if (st.st_dev != above->dev || st.st_ino != above->ino)
		return error_set(err, ERR_IO, "remove %s: %s was moved meanwhile", w->top,
				 last->name);
	above->dir = fdopendir(fd);
	if (!above->dir)
		return fail(w, errno, "read", above->name, err);
	fd = -1;
	return 0;
}

/* The last level has no entry left that could be seen: remove it itself. */
static int ascend(struct walk *w, struct error *err)
{
	struct level *last = &w->levels[w->depth - 1];

	if (reopen_above(w, err) < 0)
		return -1;

	int holder = w->depth > 1 ? dirfd(w->levels[w->depth - 2].dir) : w->parent;

	if (unlinkat(holder, last->name, AT_REMOVEDIR) < 0 && errno != ENOENT) {
		/* Filled meanwhile, or readdir lost its place among the deletions. */
		if ((errno != ENOTEMPTY && errno != EEXIST) || ++last->rescans > MAX_RESCANS)
			return fail(w, errno, "remove", last->name, err);
		rewinddir(last->dir);
		return 0;
	}
	closedir(last->dir);
	free(last->name);
	w->depth--;
	return 0;
}

/* Removes what is no directory, and empty directories; enters the others. */
static int remove_entry(struct walk *w, const char *name, bool directory, struct error *err)
{
	int holder = holder_fd(w);

	if (!directory) {
		if (unlinkat(holder, name, 0) == 0 || errno == ENOENT)
			return 0;
		if (errno != EISDIR)
			return fail(w, errno, "unlink", name, err);
	}
	if (unlinkat(holder, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno == ENOTDIR)
		return directory ? remove_entry(w, name, false, err)
				 : fail(w, errno, "remove", name, err);
	if (errno != ENOTEMPTY && errno != EEXIST)
		return fail(w, errno, "remove", name, err);
	return descend(w, name, err);
}

static int walk_step(struct walk *w, struct error *err)
{
	struct level *last = &w->levels[w->depth - 1];
	struct dirent *entry;

	do {
		errno = 0;
		entry = readdir(last->dir);
	} while (entry && (streq(entry->d_name, ".") || streq(entry->d_name, "..")));
	if (entry)
		return remove_entry(w, entry->d_name, entry->d_type == DT_DIR, err);
	if (errno && errno != ENOENT)
		return fail(w, errno, "read", last->name, err);
	return ascend(w, err);
}

int dir_remove_tree(int dirfd, const char *name, struct error *err)
{
	_cleanup_close_ int parent = -1;
	_cleanup_error_ struct error missing = { 0 };
	const char *slash = strrchr(name, '/'), *leaf = slash ? slash + 1 : name;
	_cleanup_free_ char *dir =
		slash ? xstrndup(name, (size_t)(slash - name) + 1) : xstrdup(".");

	if (!path_is_segment(leaf))
		return error_set(err, ERR_BAD_PATH, "remove \"%s\": names no entry of a directory",
				 name);
	if (dir_open(dirfd, dir, &parent, &missing) < 0) {
		if (missing.errnum == ENOENT)
			return 0;
		error_move(err, &missing);
		return error_wrap(err, "remove %s", name);
	}

	_cleanup_(walk_free) struct walk w = { .parent = parent, .top = name };

	if (remove_entry(&w, leaf, false, err) < 0)
		return -1;
	while (w.depth) {
		if (walk_step(&w, err) < 0)
			return -1;
	}
	return 0;
}
