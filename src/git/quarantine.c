#include "git/quarantine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "git/repo_config.h"

#define LOCK_TRIES 40
#define LOCK_PAUSE_MS 50

void git_quarantine_clear(struct git_quarantine *q)
{
	free(q->run_dir);
	free(q->dir);
	free(q->place);
	free(q->checked);
	free(q->private);
	*q = (struct git_quarantine){ 0 };
}

static bool same_file(const char *a, const char *b)
{
	struct stat x, y;

	return lstat(a, &x) == 0 && lstat(b, &y) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

int git_index_lock(const struct git_quarantine *q, bool *locked, struct error *err)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };
	_cleanup_free_ char *mark = path_join(q->dir, "lock");
	_cleanup_free_ char *lock = path_join(q->repo->git_dir, "index.lock");

	*locked = false;
	if (git_quarantine_write(q, q->dir, "lock", "", 0, err) < 0 ||
	    owner_enter(q->repo, &as, err) < 0)
		return -1;
	for (int i = 0; i < LOCK_TRIES && !*locked; i++) {
		struct timespec pause = { .tv_nsec = LOCK_PAUSE_MS * 1000000L };

		*locked = link(mark, lock) == 0;
		if (!*locked && errno != EEXIST)
			return error_errno(err, errno, "lock %s", lock);
		if (!*locked)
			nanosleep(&pause, NULL);
	}
	return 0;
}

void git_index_unlock(const struct git_quarantine *q)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };
	_cleanup_error_ struct error none = { 0 };
	_cleanup_free_ char *mark = path_join(q->dir, "lock");
	_cleanup_free_ char *lock = path_join(q->repo->git_dir, "index.lock");

	if (owner_enter(q->repo, &as, &none) == 0 && same_file(mark, lock))
		unlink(lock);
}

int git_quarantine_remove(const struct git_quarantine *q, struct error *err)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };

	git_index_unlock(q);
	if (owner_enter(q->repo, &as, err) < 0)
		return -1;
	return dir_remove_tree(AT_FDCWD, q->dir, err);
}

static int name_dirs(struct git_quarantine *q, const char *run_id, struct error *err)
{
	if (!id_is_valid(run_id))
		return error_set(err, ERR_INTERNAL, "no run id");
	q->run_dir = xasprintf("%s/berth/%s", q->repo->common_dir, run_id);
	q->dir = path_join(q->run_dir, "git");
	q->place = path_join(q->dir, "place");
	q->checked = path_join(q->dir, "checked");
	q->private = path_join(q->dir, "private");
	return 0;
}

int git_quarantine_clean(const struct git_repo *repo, const char *run_id, struct error *err)
{
	_cleanup_quarantine_ struct git_quarantine q = { .repo = repo };

	return name_dirs(&q, run_id, err) < 0 ? -1 : git_quarantine_remove(&q, err);
}

int git_quarantine_open(const struct git_repo *repo, const char *run_id, bool sha256,
			struct git_quarantine *out, struct error *err)
{
	_cleanup_quarantine_ struct git_quarantine q = { .repo = repo, .sha256 = sha256 };

	if (name_dirs(&q, run_id, err) < 0 || git_quarantine_remove(&q, err) < 0)
		return -1;

	/* Git takes no directory for a repository whose objects' directory is not there. */
	static const char *const dirs[] = { "place/objects", "checked/objects/pack", "private" };

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		_cleanup_free_ char *dir = path_join(q.dir, dirs[i]);
		_cleanup_close_ int fd = -1;

		if (git_open_dir(repo, dir, true, &fd, err) < 0)
			return -1;
	}
	*out = q;
	q = (struct git_quarantine){ 0 };
	return 0;
}

/* GIT_ALTERNATE_OBJECT_DIRECTORIES is divided by colons; a path in quotes may hold them. */
static void put_quoted_path(struct buf *out, const char *path)
{
	buf_putc(out, '"');
	for (; *path; path++) {
		if (*path == '"' || *path == '\\')
			buf_putc(out, '\\');
		buf_putc(out, *path);
	}
	buf_putc(out, '"');
}

char **git_objects_env(const struct git_quarantine *q, const char *objects)
{
	char **env = NULL;

	if (!objects) {
		strv_push(&env, xasprintf("GIT_OBJECT_DIRECTORY=%s/objects", q->repo->common_dir));
		return env;
	}

	struct buf alternates = { 0 };
	_cleanup_free_ char *host = path_join(q->repo->common_dir, "objects");

	buf_puts(&alternates, "GIT_ALTERNATE_OBJECT_DIRECTORIES=");
	put_quoted_path(&alternates, host);
	strv_push(&env, buf_steal(&alternates));
	strv_push(&env, xasprintf("GIT_OBJECT_DIRECTORY=%s", objects));
	return env;
}

int git_fetched_read(int fetched_fd, const char *name, size_t max, struct buf *out, bool *there,
		     struct error *err)
{
	_cleanup_error_ struct error none = { 0 };
	_cleanup_free_ char *path = xasprintf(".git/%s", name);
	_cleanup_close_ int fd = -1;
	struct stat st;

	*there = false;
	if (path_open_beneath(fetched_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, &fd, &none) <
	    0) {
		if (none.errnum == ENOENT || none.errnum == ENOTDIR || none.errnum == ELOOP)
			return 0;
		error_move(err, &none);
		return -1;
	}
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	if (fd_read_all(fd, out, max, err) < 0)
		return error_wrap(err, "the place's .git/%s", name);
	*there = true;
	return 0;
}

static int make_parent(const char *path, struct error *err)
{
	_cleanup_free_ char *dir = xstrndup(path, (size_t)(strrchr(path, '/') - path));

	return dir_make(AT_FDCWD, dir, 0777, err);
}

int git_quarantine_copy(const struct git_quarantine *q, int from, const char *to, struct error *err)
{
	_cleanup_close_ int fd = -1;
	char chunk[65536];
	ssize_t n;

	{
		_cleanup_(owner_leave) struct owner_rights as = { 0 };

		if (owner_enter(q->repo, &as, err) < 0 || make_parent(to, err) < 0)
			return -1;
		fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	}
	if (fd < 0)
		return error_errno(err, errno, "create %s", to);
	while ((n = read(from, chunk, sizeof(chunk))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "read for %s", to);
		if (fd_write_all(fd, chunk, (size_t)n, err) < 0)
			return -1;
	}
	return 0;
}

int git_quarantine_write(const struct git_quarantine *q, const char *dir, const char *name,
			 const void *data, size_t len, struct error *err)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };
	_cleanup_close_ int fd = -1, file = -1;

	if (git_open_dir(q->repo, dir, true, &fd, err) < 0 || owner_enter(q->repo, &as, err) < 0)
		return -1;
	/* What is in the quarantine itself is made anew after a crash: it need not be on the disk.
	 */
	if (!q->dir || !str_starts(dir, q->dir))
		return file_replace(fd, name, data, len, 0644, err);
	file = openat(fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (file < 0)
		return error_errno(err, errno, "create %s/%s", dir, name);
	return fd_write_all(file, data, len, err);
}

int git_private_make(const struct git_quarantine *q, struct error *err)
{
	_cleanup_(git_settings_clear) struct git_settings settings = { 0 };
	_cleanup_buf_ struct buf shallow = { 0 };
	_cleanup_free_ char *objects = path_join(q->private, "objects"),
			    *refs = path_join(q->private, "refs");
	_cleanup_close_ int objects_fd = -1, refs_fd = -1;
	bool there;

	if (git_settings_read(q->repo, &settings, err) < 0 ||
	    git_open_dir(q->repo, objects, true, &objects_fd, err) < 0 ||
	    git_open_dir(q->repo, refs, true, &refs_fd, err) < 0 ||
	    git_quarantine_write(q, q->private, "HEAD", "ref: refs/heads/none\n", 21, err) < 0 ||
	    git_quarantine_write(q, q->private, "config", settings.for_place.data,
				 settings.for_place.len, err) < 0 ||
	    git_read_file(q->repo, q->repo->common_dir, "shallow", 1 << 24, &shallow, &there, err) <
		    0)
		return -1;
	return there ? git_quarantine_write(q, q->private, "shallow", shallow.data, shallow.len,
					    err)
		     : 0;
}
