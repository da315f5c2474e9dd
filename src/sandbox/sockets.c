/*
 * Unix sockets in directories of the host that a place gets. Whoever can name one may speak to the
 * service behind it, without a network and through a read-only mount too: the walls say nothing of
 * it. So each that lies there when the place is made is covered by a socket that nobody listens on.
 * Covers are mounts of the place's own namespace: nothing inside takes them away, the host does not
 * see them, and one that is moved stays covered. What is made there later is not.
 *
 * The walk goes by descriptors and follows no link. Its rights are those of the namespace's root,
 * then the payload's. A directory that neither may list but the payload may enter is covered whole.
 */
#include "sandbox/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/text.h"
#include "sandbox/mount_calls.h"

#define ENTRIES_MAX 1000000u
#define COVERS_MAX 1024u
#define DEPTH_MAX 256u
#define WALK_SECONDS 10
#define DEAF_SOCKET "deaf-socket"
#define EMPTY_DIRECTORY "empty-directory"

struct walk {
	const char *what; /* for people */
	int stage;
	uid_t payload;
	unsigned entries, covers;
	time_t until;
	/* One for all directories: it is read to its end before the walk goes deeper. */
	char records[32 << 10] __attribute__((aligned(8)));
};

/* As the kernel has it. */
struct record {
	uint64_t inode;
	int64_t next;
	unsigned short len;
	unsigned char type;
	char name[];
};

static time_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

static int too_large(const struct walk *w, struct error *err)
{
	return error_set(
		err, ERR_UNAVAILABLE,
		"%.200s is too large, too deep or too slow to look for unix sockets of the "
		"host in it; give less of it, or leave them in reach with sockets: true",
		w->what);
}

static int lay_over(struct walk *w, int target, const char *cover, struct error *err)
{
	_cleanup_close_ int tree = -1;

	if (++w->covers > COVERS_MAX)
		return too_large(w, err);
	tree = tree_clone(w->stage, cover, 0);
	if (tree < 0 ||
	    tree_change(tree, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC, -1, 0) < 0 ||
	    tree_attach(tree, target, "") < 0)
		return error_errno(err, errno, "covering a unix socket of %.200s", w->what);
	return 0;
}

/* What it is is asked of the descriptor that is covered: a name may be another thing by now. */
static int cover_socket(struct walk *w, int dir, const char *name, struct error *err)
{
	_cleanup_close_ int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode))
		return 0;
	return lay_over(w, fd, DEAF_SOCKET, err);
}

/* With the payload's rights; *enterable is whether it may look for names it knows. */
static int open_as_payload(struct walk *w, int dir, const char *name, bool *enterable)
{
	gid_t gid = (gid_t)setfsgid(w->payload);
	uid_t uid = (uid_t)setfsuid(w->payload);
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int saved = errno;
	struct stat st;

	*enterable =
		fd < 0 &&
		(faccessat(dir, name, X_OK, AT_EACCESS) == 0 ||
		 (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == w->payload));
	setfsuid(uid);
	setfsgid(gid);
	errno = saved;
	return fd;
}

/* The directory to walk, or -1: there is nothing to see. -2 with err. */
static int open_directory(struct walk *w, int dir, const char *name, struct error *err)
{
	_cleanup_close_ int target = -1;
	bool enterable;
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 || errno != EACCES)
		return fd;
	fd = open_as_payload(w, dir, name, &enterable);
	if (fd >= 0 || !enterable)
		return fd;
	target = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (target >= 0 && lay_over(w, target, EMPTY_DIRECTORY, err) < 0)
		return -2;
	return -1;
}

static unsigned char type_of(int dir, const struct record *r)
{
	struct stat st;

	if (r->type != DT_UNKNOWN)
		return r->type;
	if (fstatat(dir, r->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return DT_UNKNOWN;
	return S_ISSOCK(st.st_mode) ? DT_SOCK : S_ISDIR(st.st_mode) ? DT_DIR : DT_REG;
}

/* Covers the sockets of one directory; `below` gets the names of those in it. */
static int read_directory(struct walk *w, int dir, struct buf *below, struct error *err)
{
	long n;

	while ((n = syscall(SYS_getdents64, dir, w->records, sizeof(w->records))) > 0) {
		for (long at = 0; at < n;) {
			const struct record *r = (const struct record *)(void *)(w->records + at);

			at += r->len;
			if (strcmp(r->name, ".") == 0 || strcmp(r->name, "..") == 0)
				continue;
			if (++w->entries > ENTRIES_MAX)
				return too_large(w, err);

			unsigned char type = type_of(dir, r);

			if (type == DT_SOCK && cover_socket(w, dir, r->name, err) < 0)
				return -1;
			if (type == DT_DIR)
				buf_append(below, r->name, strlen(r->name) + 1);
		}
	}
	return n < 0 ? error_errno(err, errno, "looking for unix sockets in %.200s", w->what) : 0;
}

static int walk_down(struct walk *w, int dir, unsigned depth, struct error *err)
{
	_cleanup_buf_ struct buf below = { 0 };

	if (depth > DEPTH_MAX || now() > w->until)
		return too_large(w, err);
	if (read_directory(w, dir, &below, err) < 0)
		return -1;
	for (size_t at = 0; at < below.len; at += strlen(below.data + at) + 1) {
		_cleanup_close_ int fd = open_directory(w, dir, below.data + at, err);

		if (fd == -2 || (fd >= 0 && walk_down(w, fd, depth + 1, err) < 0))
			return -1;
	}
	return 0;
}

static int make_covers(int stage, struct error *err)
{
	/* Open to all, so that it refuses as a service that has ended does. */
	if ((mknodat(stage, DEAF_SOCKET, S_IFSOCK | 0666, 0) < 0 && errno != EEXIST) ||
	    fchmodat(stage, DEAF_SOCKET, 0666, 0) < 0 ||
	    (mkdirat(stage, EMPTY_DIRECTORY, 0555) < 0 && errno != EEXIST))
		return error_errno(err, errno, "making covers for unix sockets");
	return 0;
}

int sockets_cover(const struct sandbox_birth *b, int stage, int tree, const char *what,
		  struct error *err)
{
	_cleanup_free_ struct walk *w = NULL;
	_cleanup_close_ int dir = -1;

	if (b->spec->sockets || FENCE_OFF("sandbox.wall.sockets"))
		return 0;
	if (make_covers(stage, err) < 0)
		return -1;
	w = xmalloc(sizeof(*w));
	w->what = what;
	w->stage = stage;
	w->payload = b->spec->uid;
	w->entries = w->covers = 0;
	w->until = now() + WALK_SECONDS;
	dir = openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0) {
		bool enterable;

		dir = open_as_payload(w, tree, ".", &enterable);
		/* Known names in it could be used, and it cannot be looked at. */
		if (dir < 0 && enterable)
			return too_large(w, err);
	}
	return dir < 0 ? 0 : walk_down(w, dir, 0, err);
}
