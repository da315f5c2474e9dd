#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/text.h"
#include "workspace/apply_internal.h"

/* One directory deeper, or around one obstacle, at each. */
#define MAX_TURNS (2 * TREE_PATH_MAX)
#define MAX_BESIDE 10000

void way_clear(struct way *way)
{
	close_fdp(&way->parent);
	free(way->path);
	way->path = NULL;
}

char *apply_beside(const char *path, const char *tag, unsigned n)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t dir_len = (size_t)(name - path), len = strlen(name);
	char suffix[32];

	if (n)
		snprintf(suffix, sizeof(suffix), ".berth-%s.%u", tag, n + 1);
	else
		snprintf(suffix, sizeof(suffix), ".berth-%s", tag);
	if (len + strlen(suffix) > NAME_MAX) {
		len = NAME_MAX - strlen(suffix);
		/* Not in the middle of a character. */
		while (len > 1 && ((unsigned char)name[len] & 0xc0) == 0x80)
			len--;
	}
	return xasprintf("%.*s%.*s%s", (int)dir_len, path, (int)len, name, suffix);
}

bool apply_is_known(const struct apply *a, const char *path)
{
	struct tree_entry entry;
	size_t len = strlen(path);

	return manifest_find(a->changes, path, len, &entry) ||
	       manifest_find(a->base, path, len, &entry);
}

const char *apply_refusal(int errnum)
{
	switch (errnum) {
	case EXDEV:
	case EBUSY:
		return "another file system is mounted there";
	case EACCES:
	case EPERM:
		return "this server's user may not write there";
	case ENAMETOOLONG:
		return "the path is too long for this host";
	case EINVAL:
	case EILSEQ:
		return "the file system of the workspace does not take that name or kind of file";
	default:
		return strerror(errnum);
	}
}

bool apply_is_fatal(int errnum)
{
	return errnum == ENOSPC || errnum == EDQUOT || errnum == EIO || errnum == EROFS ||
	       errnum == ENOMEM || errnum == EMFILE || errnum == ENFILE;
}

int apply_sync(struct apply *a, struct error *err)
{
	return staging_sync(&a->staging, err) < 0 ? -1 : journal_sync(a->journal, err);
}

/*
 * Where renameat2 does not know its flags a link does the same for files; a directory never
 * replaces anything but an empty one.
 */
int apply_rename_new(const struct apply *a, int from_fd, const char *from, int to_fd,
		     const char *to)
{
	struct stat st;

	if (a->staging.can_exchange)
		return renameat2(from_fd, from, to_fd, to, RENAME_NOREPLACE);
	if (fstatat(from_fd, from, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	if (!S_ISDIR(st.st_mode))
		return linkat(from_fd, from, to_fd, to, 0) < 0 ? -1 : unlinkat(from_fd, from, 0);
	if (fstatat(to_fd, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		errno = EEXIST;
		return -1;
	}
	return renameat(from_fd, from, to_fd, to);
}

/* Every beginning of the path that was gone around before is gone around again. */
static bool follow_redirect(const struct apply *a, struct way *way)
{
	for (const char *end = strchr(way->path, '/'); end; end = strchr(end + 1, '/')) {
		const char *beside =
			journal_redirect(a->journal, way->path, (size_t)(end - way->path));

		if (!beside)
			continue;

		char *path = xasprintf("%s%s", beside, end);

		free(way->path);
		way->path = path;
		way->redirected = true;
		return true;
	}
	return false;
}

/* Of the owner of the directory it is in. */
static int make_dir(int parent, const char *name)
{
	struct stat st;

	if (mkdirat(parent, name, 0755) < 0)
		return -1;
	if (geteuid() == 0 && fstat(parent, &st) == 0)
		return fchownat(parent, name, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW);
	return 0;
}

/* The first directory on the way that is missing. */
static int make_missing(const struct apply *a, const char *path)
{
	_cleanup_free_ char *prefix = xstrdup(path);

	for (char *end = strchr(prefix, '/'); end; end = strchr(end + 1, '/')) {
		const char *name;

		*end = '\0';

		_cleanup_close_ int there = host_open_dir(a->workspace_fd, prefix, O_PATH);

		if (there >= 0) {
			*end = '/';
			continue;
		}
		if (errno != ENOENT)
			return -1;

		_cleanup_close_ int parent = host_open_parent(a->workspace_fd, prefix, &name);

		return parent < 0 || (make_dir(parent, name) < 0 && errno != EEXIST) ? -1 : 0;
	}
	return 0;
}

/* In the journal before it is made: a crash between the two finds the same way again. */
static int go_around(struct apply *a, const char *path, size_t len, int *errnum, struct error *err)
{
	_cleanup_free_ char *obstacle = xstrndup(path, len);
	const char *name;

	for (unsigned n = 0; n < MAX_BESIDE; n++) {
		_cleanup_free_ char *beside = apply_beside(obstacle, a->tag, n);
		_cleanup_close_ int parent = -1;

		if (apply_is_known(a, beside))
			continue;
		parent = host_open_parent(a->workspace_fd, beside, &name);
		if (parent < 0) {
			*errnum = errno;
			return 0;
		}
		if (faccessat(parent, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		journal_add_redirect(a->journal, obstacle, beside);
		if (apply_sync(a, err) < 0)
			return -1;
		if (make_dir(parent, name) < 0 && errno == EEXIST)
			continue;
		return 0;
	}
	*errnum = EEXIST;
	return 0;
}

int apply_find_way(struct apply *a, const char *path, struct way *way, struct error *err)
{
	*way = (struct way){ .parent = -1, .path = xstrdup(path) };
	for (int turn = 0; turn < MAX_TURNS; turn++) {
		if (follow_redirect(a, way))
			continue;
		way->parent = host_open_parent(a->workspace_fd, way->path, &way->name);
		if (way->parent >= 0)
			return 0;
		way->errnum = errno;
		if (way->errnum == ENOENT && make_missing(a, way->path) == 0)
			continue;
		if (way->errnum == ENOENT)
			way->errnum = errno;

		size_t obstacle = way->errnum == ENOTDIR || way->errnum == ELOOP
					  ? host_obstacle(a->workspace_fd, way->path)
					  : 0;

		if (way->errnum == ENOTDIR || way->errnum == ELOOP) {
			int errnum = 0;

			if (obstacle && go_around(a, way->path, obstacle, &errnum, err) < 0)
				return -1;
			if (!errnum)
				continue;
			way->errnum = errnum;
		}
		if (apply_is_fatal(way->errnum))
			return error_errno(err, way->errnum, "the way to %s", way->path);
		return 0;
	}
	way->errnum = EBUSY;
	return 0;
}
