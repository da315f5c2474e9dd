#include "git/repo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"

#define POINTER_MAX 8192

int owner_enter(const struct git_repo *repo, struct owner_rights *as, struct error *err)
{
	const struct owner owner = { .uid = repo->uid,
				     .gid = repo->gid,
				     .differs = repo->as_owner };

	return owner_take(&owner, as, err);
}

void git_repo_clear(struct git_repo *repo)
{
	free(repo->path);
	free(repo->git_dir);
	free(repo->common_dir);
	*repo = (struct git_repo){ .root_fd = -1, .cancel_fd = -1 };
}

int git_read_file(const struct git_repo *repo, const char *dir, const char *name, size_t max,
		  struct buf *out, bool *there, struct error *err)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };
	_cleanup_free_ char *path = path_join(dir, name);
	struct stat st;

	*there = false;
	if (owner_enter(repo, &as, err) < 0)
		return -1;

	_cleanup_close_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "read %s", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, ERR_UNPROCESSABLE, "%s is not a regular file", path);
	if (fd_read_all(fd, out, max, err) < 0)
		return error_wrap(err, "%s", path);
	*there = true;
	return 0;
}

int git_open_dir(const struct git_repo *repo, const char *path, bool make, int *fd,
		 struct error *err)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };

	if (owner_enter(repo, &as, err) < 0)
		return -1;
	if (make && dir_make(AT_FDCWD, path, 0777, err) < 0)
		return -1;
	*fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *fd < 0 ? error_errno(err, errno, "open %s", path) : 0;
}

int git_names_in(const struct git_repo *repo, const char *path, char ***names, int *fd,
		 struct error *err)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };

	if (owner_enter(repo, &as, err) < 0)
		return -1;
	*fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0
							   : error_errno(err, errno, "%s", path);

	int copy = fcntl(*fd, F_DUPFD_CLOEXEC, 0);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	size_t count = 0, cap = 0;

	if (!dir)
		return error_errno(err, errno, "%s", path);
	for (struct dirent *e; (e = readdir(dir));) {
		if (streq(e->d_name, ".") || streq(e->d_name, ".."))
			continue;
		if (count + 1 >= cap) {
			cap = cap ? cap * 2 : 64;
			*names = xreallocarray(*names, cap, sizeof(**names));
		}
		(*names)[count++] = xstrdup(e->d_name);
		(*names)[count] = NULL;
	}
	closedir(dir);
	return 0;
}

int git_open_source(int root_fd, const char *source, uint64_t size, int *fd, struct error *err)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };
	struct open_how how = {
		.flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	struct owner owner;
	struct stat st;

	if (owner_of(root_fd, &owner, err) < 0)
		return -1;
	if (owner_take(&owner, &as, err) < 0)
		return -1;

	_cleanup_close_ int file = (int)syscall(SYS_openat2, AT_FDCWD, source, &how, sizeof(how));

	if (file < 0 || fstat(file, &st) < 0)
		return error_errno(err, errno, "%s", source);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != size)
		return error_set(err, ERR_CONFLICT, "%s changed while it was staged", source);
	*fd = steal_fd(&file);
	return 0;
}

/* With the owner's rights, so that it says nothing about directories closed to them. */
static int canonical(const struct git_repo *repo, const char *path, char **out, struct error *err)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };

	if (owner_enter(repo, &as, err) < 0)
		return -1;
	*out = realpath(path, NULL);
	if (*out)
		return 0;
	error_errno(err, errno, "the repository's directory %s", path);
	return error_recode(err, ERR_UNPROCESSABLE);
}

/* One line of text without its newline: what `.git` files and `commondir` hold. */
static int read_pointer(const struct git_repo *repo, const char *dir, const char *name, char **out,
			bool *there, struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };

	if (git_read_file(repo, dir, name, POINTER_MAX, &text, there, err) < 0 || !*there)
		return *there ? -1 : 0;
	while (text.len && (text.data[text.len - 1] == '\n' || text.data[text.len - 1] == '\r'))
		text.data[--text.len] = '\0';
	if (!text.len || strlen(text.data) != text.len)
		return error_set(err, ERR_UNPROCESSABLE, "%s/%s is not what git writes there", dir,
				 name);
	*out = buf_steal(&text);
	return 0;
}

static int follow_git_file(struct git_repo *repo, struct error *err)
{
	_cleanup_free_ char *line = NULL, *joined = NULL;
	bool there;

	if (read_pointer(repo, repo->path, ".git", &line, &there, err) < 0)
		return -1;
	if (!there || !str_starts(line, "gitdir: "))
		return error_set(err, ERR_UNPROCESSABLE,
				 "%s/.git is a file that names no repository", repo->path);
	joined = path_join(repo->path, line + strlen("gitdir: "));
	return canonical(repo, joined, &repo->git_dir, err);
}

static int find_common_dir(struct git_repo *repo, struct error *err)
{
	_cleanup_free_ char *line = NULL, *joined = NULL;
	bool there;

	if (read_pointer(repo, repo->git_dir, "commondir", &line, &there, err) < 0)
		return -1;
	if (!there) {
		repo->common_dir = xstrdup(repo->git_dir);
		return 0;
	}
	joined = path_join(repo->git_dir, line);
	return canonical(repo, joined, &repo->common_dir, err);
}

static int find_dirs(struct git_repo *repo, mode_t type, struct error *err)
{
	_cleanup_free_ char *dir = path_join(repo->path, ".git");

	if (S_ISREG(type)) {
		repo->kind = GIT_WORKTREE;
		if (follow_git_file(repo, err) < 0)
			return -1;
	} else if (S_ISDIR(type)) {
		repo->kind = GIT_DIRECTORY;
		if (canonical(repo, dir, &repo->git_dir, err) < 0)
			return -1;
	} else {
		return error_set(err, ERR_UNPROCESSABLE,
				 "%s is a link or not a file; put the repository itself there, or "
				 "use git init --separate-git-dir",
				 dir);
	}
	return find_common_dir(repo, err);
}

int git_repo_find(int root_fd, const char *path, int cancel_fd, struct git_repo *out,
		  struct error *err)
{
	struct stat root, st;

	*out = (struct git_repo){ .root_fd = root_fd, .cancel_fd = cancel_fd };
	if (fstat(root_fd, &root) < 0)
		return error_errno(err, errno, "stat %s", path);
	out->path = realpath(path, NULL);
	if (!out->path)
		return error_errno(err, errno, "%s", path);
	out->uid = root.st_uid;
	out->gid = root.st_gid;
	out->as_owner = geteuid() == 0 && root.st_uid != 0;
	if (fstatat(root_fd, ".git", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : error_errno(err, errno, "%s/.git", path);
	return find_dirs(out, st.st_mode & S_IFMT, err);
}
