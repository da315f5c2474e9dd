/*
 * Mode worktree. What is made can be told from what was there: a mark with the path is written
 * before anything else, and a second one when everything is done. With the first and without the
 * second, whatever is at the path is a broken try of ours that nobody has used yet.
 *
 * Files are copied from the checkout, not checked out: so they are what they are there, changed or
 * not, and no filter runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "git/cli.h"
#include "git/hidden.h"
#include "git/index.h"
#include "git/known_names.h"

#define MARK "worktree"
#define READY "worktree-ready"
#define PATHS_MAX (1U << 29)

struct worktree {
	struct git_repo host;
	int host_fd;
	const char *run_id;
	char *where;  /* canonical but for its last part */
	char *branch; /* "berth/<run>" */
	char *run_dir;
	const json_t *show;
	char *admin; /* <common>/worktrees/<name> that belongs to `where`, or NULL */
};

static void worktree_clear(struct worktree *w)
{
	git_repo_clear(&w->host);
	close_fdp(&w->host_fd);
	free(w->where);
	free(w->branch);
	free(w->run_dir);
	free(w->admin);
}

/* Git writes the path of the worktree's .git file into its administrative directory. */
static int find_admin(struct worktree *w, struct error *err)
{
	_cleanup_free_ char *dir = path_join(w->host.common_dir, "worktrees");
	_cleanup_free_ char *want = xasprintf("%s/.git\n", w->where);
	_cleanup_strv_ char **names = NULL;
	_cleanup_close_ int fd = -1;

	free(w->admin);
	w->admin = NULL;
	if (git_names_in(&w->host, dir, &names, &fd, err) < 0)
		return -1;
	for (char **name = names; name && *name && !w->admin; name++) {
		_cleanup_free_ char *admin = path_join(dir, *name);
		_cleanup_buf_ struct buf text = { 0 };
		bool there;

		if (git_read_file(&w->host, admin, "gitdir", 8192, &text, &there, err) < 0)
			return -1;
		if (there && streq(buf_str(&text), want))
			w->admin = steal(admin);
	}
	return 0;
}

/*
 * The directory above, made at need. In a workspace it is .berth, which tells git itself that it is
 * to be ignored.
 */
static int make_parent(const struct git_repo *repo, const char *parent, struct error *err)
{
	_cleanup_quarantine_ struct git_quarantine q = { .repo = repo };
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_close_ int fd = -1;
	bool there;

	if (git_open_dir(repo, parent, true, &fd, err) < 0)
		return -1;
	if (!str_ends(parent, "/.berth"))
		return 0;
	if (git_read_file(repo, parent, ".gitignore", 4096, &text, &there, err) < 0)
		return -1;
	return there ? 0 : git_quarantine_write(&q, parent, ".gitignore", "*\n", 2, err);
}

/* With the parent's real path: git writes it so. NULL when the parent is not there. */
static int canonical_where(const struct git_repo *repo, const char *where, bool make, char **out,
			   struct error *err)
{
	const char *name = strrchr(where, '/');
	_cleanup_free_ char *parent =
		name ? xstrndup(where, (size_t)MAX_OF(name - where, 1)) : NULL;
	_cleanup_free_ char *real = NULL;

	*out = NULL;
	if (!parent || !path_is_segment(name + 1))
		return error_set(err, ERR_BAD_PATH, "%s is no path for a worktree", where);
	if (make && make_parent(repo, parent, err) < 0)
		return -1;
	real = realpath(parent, NULL);
	if (real)
		*out = path_join(real, name + 1);
	return real || errno == ENOENT ? 0 : error_errno(err, errno, "%s", where);
}

static int open_worktree(const char *path, const char *run_id, const char *where, bool make,
			 int cancel_fd, struct worktree *w, struct error *err)
{
	*w = (struct worktree){ .host_fd = -1, .run_id = run_id };
	if (!id_is_valid(run_id))
		return error_set(err, ERR_INTERNAL, "no run id");
	w->host_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w->host_fd < 0)
		return error_errno(err, errno, "%s", path);
	if (git_repo_find(w->host_fd, path, cancel_fd, &w->host, err) < 0)
		return -1;
	if (w->host.kind == GIT_NONE)
		return error_set(err, ERR_UNPROCESSABLE,
				 "%s is no git repository; mode worktree needs one", path);
	if (canonical_where(&w->host, where, make, &w->where, err) < 0)
		return -1;
	if (!w->where)
		return 0;
	w->branch = xasprintf("berth/%s", run_id);
	w->run_dir = xasprintf("%s/berth/%s", w->host.common_dir, run_id);
	return find_admin(w, err);
}

static int read_mark(const struct worktree *w, bool *ours, struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };

	if (git_read_file(&w->host, w->run_dir, MARK, 8192, &text, ours, err) < 0)
		return -1;
	*ours = *ours && streq(buf_str(&text), w->where);
	return 0;
}

static int write_mark(const struct worktree *w, struct error *err)
{
	_cleanup_quarantine_ struct git_quarantine q = { .repo = &w->host };

	return git_quarantine_write(&q, w->run_dir, MARK, w->where, strlen(w->where), err);
}

/* It was made once; whether it is still whole is another question. */
static int was_ready(const struct worktree *w, bool *ready, struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };

	return git_read_file(&w->host, w->run_dir, READY, 8192, &text, ready, err);
}

static bool is_whole(const struct worktree *w)
{
	_cleanup_free_ char *git = path_join(w->where, ".git");
	struct stat st;

	return w->admin && lstat(git, &st) == 0;
}

static int remove_tree(const struct worktree *w, const char *path, struct error *err)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };

	if (!path)
		return 0;
	if (owner_enter(&w->host, &as, err) < 0)
		return -1;
	return dir_remove_tree(AT_FDCWD, path, err);
}

static int branch_value(const struct worktree *w, struct buf *oid, struct error *err)
{
	_cleanup_free_ char *ref = xasprintf("refs/heads/%s", w->branch);
	struct git_call call = {
		.repo = &w->host,
		.args = GIT_ARGS("for-each-ref", "--format=%(objectname)", ref),
	};

	if (git_run(&call, oid, NULL, err) < 0)
		return -1;
	while (oid->len && oid->data[oid->len - 1] == '\n')
		oid->data[--oid->len] = '\0';
	return 0;
}

static int delete_branch(const struct worktree *w, const char *value, struct error *err)
{
	_cleanup_free_ char *ref = xasprintf("refs/heads/%s", w->branch);
	struct git_call call = {
		.repo = &w->host,
		.args = GIT_ARGS("update-ref", "-d", ref, value),
		.writes = true,
	};

	return git_run(&call, NULL, NULL, err);
}

/* Commits of the branch that only the branch has. */
static int has_commits(const struct worktree *w, const char *value, bool *yes, struct error *err)
{
	_cleanup_free_ char *branch = xasprintf("--exclude=refs/heads/%s", w->branch);
	_cleanup_free_ char *kept = xasprintf("--exclude=refs/berth/%s", w->run_id);
	_cleanup_buf_ struct buf answer = { 0 };
	struct git_call call = {
		.repo = &w->host,
		.args = GIT_ARGS("rev-list", "-1", value, "--not", branch, kept, "--all"),
	};

	if (git_run(&call, &answer, NULL, err) < 0)
		return -1;
	*yes = answer.len > 0;
	return 0;
}

/* Goes unless it has commits that would be lost with it. */
static int drop_branch(const struct worktree *w, bool *stays, struct error *err)
{
	_cleanup_buf_ struct buf value = { 0 };

	*stays = false;
	if (branch_value(w, &value, err) < 0)
		return -1;
	if (!value.len)
		return 0;
	if (has_commits(w, value.data, stays, err) < 0)
		return -1;
	return *stays ? 0 : delete_branch(w, value.data, err);
}

static bool is_free(const char *path)
{
	struct stat st;

	/* An empty directory is as good as none; rmdir says whether it is. */
	return lstat(path, &st) < 0 || (S_ISDIR(st.st_mode) && rmdir(path) == 0);
}

static int refuse_branch(const struct worktree *w, struct error *err)
{
	return error_set(err, ERR_CONFLICT, "there is a branch %s already", w->branch);
}

/* A broken try of ours goes; anything that somebody may have worked in is refused. */
static int clear_the_way(struct worktree *w, bool ready, struct error *err)
{
	_cleanup_buf_ struct buf value = { 0 };
	bool ours, stays;

	if (read_mark(w, &ours, err) < 0 || branch_value(w, &value, err) < 0)
		return -1;
	if (ours && !ready && remove_tree(w, w->where, err) < 0)
		return -1;
	if (!is_free(w->where))
		return error_set(err, ERR_CONFLICT,
				 "%s is not empty; the worktree of a run is made in a directory of "
				 "its own",
				 w->where);
	if (!ours)
		return value.len ? refuse_branch(w, err) : 0;
	if (remove_tree(w, w->admin, err) < 0 || drop_branch(w, &stays, err) < 0)
		return -1;
	return stays ? refuse_branch(w, err) : 0;
}

static int make_worktree(struct worktree *w, struct error *err)
{
	struct git_call call = {
		.repo = &w->host,
		.args = GIT_ARGS("worktree", "add", "--no-checkout", "--no-guess-remote",
				 "--no-track", "-b", w->branch, w->where, "HEAD"),
		.writes = true,
	};

	if (git_run(&call, NULL, NULL, err) < 0)
		return error_wrap(err, "worktree for the run (a repository needs a commit for it)");
	if (find_admin(w, err) < 0)
		return -1;
	return w->admin ? 0 : error_set(err, ERR_INTERNAL, "git made a worktree in an unknown way");
}

static int list_paths(const struct git_repo *repo, const char *kind, struct buf *list,
		      struct error *err)
{
	struct git_call call = {
		.repo = repo,
		.args = GIT_ARGS("ls-files", "-z", "--exclude-standard", "--others", kind),
		.max_output = PATHS_MAX,
		.user_config = true, /* for core.excludesFile */
	};

	return git_run(&call, list, NULL, err);
}

static int copy_bytes(int from, int to, struct error *err)
{
	char chunk[65536];
	ssize_t n;

	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	while ((n = copy_file_range(from, NULL, to, NULL, 1 << 30, 0)) > 0)
		;
	if (n == 0)
		return 0;
	while ((n = read(from, chunk, sizeof(chunk))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "read");
		if (fd_write_all(to, chunk, (size_t)n, err) < 0)
			return -1;
	}
	return 0;
}

static int copy_file(int from, const struct stat *st, int dir, const char *name, struct error *err)
{
	_cleanup_close_ int to =
		openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		       (mode_t)(st->st_mode & 0777));
	struct timespec times[2] = { st->st_atim, st->st_mtim };

	if (to < 0)
		return error_errno(err, errno, "create %s", name);
	if (copy_bytes(from, to, err) < 0)
		return -1;
	if (fchmod(to, st->st_mode & 0777) < 0 || futimens(to, times) < 0)
		return error_errno(err, errno, "mode of %s", name);
	return 0;
}

static int copy_link(int from, int dir, const char *name, struct error *err)
{
	char target[4096];
	ssize_t n = readlinkat(from, "", target, sizeof(target) - 1);

	if (n < 0)
		return error_errno(err, errno, "read link %s", name);
	target[n] = '\0';
	return symlinkat(target, dir, name) < 0 ? error_errno(err, errno, "link %s", name) : 0;
}

/* Copies one path of the checkout; what is not there was deleted, and stays so. */
static int copy_path(const struct worktree *w, int to_root, const char *path, struct error *err)
{
	_cleanup_error_ struct error gone = { 0 };
	_cleanup_close_ int at = -1, dir = -1;
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	_cleanup_free_ char *parent = slash ? xstrndup(path, (size_t)(slash - path)) : xstrdup(".");
	struct stat st;

	if (path_open_beneath(w->host_fd, path, O_PATH | O_NOFOLLOW, 0, &at, &gone) < 0)
		return 0;
	if (fstat(at, &st) < 0)
		return error_errno(err, errno, "%s", path);
	if (slash && dir_make(to_root, parent, 0777, err) < 0)
		return -1;
	if (path_open_beneath(to_root, parent, O_RDONLY | O_DIRECTORY, 0, &dir, err) < 0)
		return -1;
	if (S_ISLNK(st.st_mode))
		return copy_link(at, dir, name, err);
	if (S_ISDIR(st.st_mode)) /* a submodule that is not checked out */
		return mkdirat(dir, name, 0777) < 0 && errno != EEXIST
			       ? error_errno(err, errno, "make %s", path)
			       : 0;
	if (!S_ISREG(st.st_mode))
		return 0;

	_cleanup_close_ int from = -1;

	if (path_open_beneath(w->host_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, &from, err) <
	    0)
		return -1;
	return copy_file(from, &st, dir, name, err);
}

static int copy_paths(const struct worktree *w, const struct git_repo *made, struct error *err)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };
	_cleanup_buf_ struct buf list = { 0 };
	_cleanup_(hidden_free) struct hidden hidden = { 0 };
	const char *last = "";

	if (list_paths(&w->host, "--cached", &list, err) < 0 ||
	    hidden_load(&hidden, w->host_fd, w->host.path, w->show, w->host.cancel_fd, NULL, err) <
		    0 ||
	    owner_enter(&w->host, &as, err) < 0)
		return -1;
	for (size_t at = 0; at < list.len; at += strlen(list.data + at) + 1) {
		const char *path = list.data + at;

		/* Conflicts are listed thrice; a repository inside that nobody added ends in /. */
		if (streq(path, last) || str_ends(path, "/") || str_starts(path, ".berth/"))
			continue;
		last = path;
		if (names_hide_within(path, strlen(path), false) &&
		    !hidden_keeps(&hidden, path, strlen(path)))
			continue;
		if (latch_is_set(w->host.cancel_fd))
			return error_set(err, ERR_CANCELLED, "cancelled while files were copied");
		if (copy_path(w, made->root_fd, path, err) < 0)
			return error_wrap(err, "copy %s", path);
	}
	return 0;
}

static int copy_state(const struct worktree *w, const struct git_quarantine *q, struct error *err)
{
	static const char *const more[] = { "info/sparse-checkout", NULL };
	const char *const *const lists[] = { git_state_files, more };

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		for (const char *const *name = lists[i]; *name; name++) {
			_cleanup_buf_ struct buf text = { 0 };
			_cleanup_free_ char *dir =
				i ? path_join(w->admin, "info") : xstrdup(w->admin);
			bool there;

			if (git_read_file(&w->host, w->host.git_dir, *name, GIT_STATE_MAX, &text,
					  &there, err) < 0)
				return -1;
			if (there && git_quarantine_write(q, dir, i ? *name + 5 : *name,
							  buf_str(&text), text.len, err) < 0)
				return -1;
		}
	}
	return 0;
}

static int copy_index(const struct worktree *w, const struct git_quarantine *q, struct error *err)
{
	_cleanup_(index_entries_clear) struct index_entries entries = { 0 };
	_cleanup_free_ char *file = path_join(w->admin, "index");
	_cleanup_free_ char *lock = path_join(w->host.git_dir, "index");
	struct git_quarantine host = *q; /* the same, seen from the checkout */
	struct stat st;

	host.repo = &w->host;
	if (git_private_make(q, err) < 0)
		return -1;
	if (lstat(lock, &st) == 0 && index_entries_host(&host, &entries, err) < 0)
		return -1;
	return index_entries_write(q, file, &entries, &entries, err);
}

static int fill_worktree(struct worktree *w, struct error *err)
{
	_cleanup_repo_ struct git_repo made = { 0 };
	_cleanup_quarantine_ struct git_quarantine q = { 0 };
	_cleanup_json_ json_t *about = NULL;
	_cleanup_close_ int fd = open(w->where, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	enum git_kind kind;

	if (fd < 0)
		return error_errno(err, errno, "open %s", w->where);
	if (git_repo_find(fd, w->where, w->host.cancel_fd, &made, err) < 0 ||
	    git_inspect(w->host_fd, w->host.path, w->host.cancel_fd, NULL, &kind, &about, err) <
		    0 ||
	    git_quarantine_open(&made, w->run_id, git_about_is_sha256(about), &q, err) < 0)
		return -1;
	if (copy_paths(w, &made, err) < 0 || copy_index(w, &q, err) < 0 ||
	    copy_state(w, &q, err) < 0 || git_quarantine_remove(&q, err) < 0)
		return -1;
	if (FAULT_HERE("workspace.git.worktree.ready", err) < 0)
		return -1;
	return git_quarantine_write(&q, w->run_dir, READY, "", 0, err);
}

int git_worktree_add(const char *path, const char *run_id, const char *where, const json_t *show,
		     int cancel_fd, struct error *err)
{
	_cleanup_(worktree_clear) struct worktree w = { .host_fd = -1 };
	bool ready;

	if (open_worktree(path, run_id, where, true, cancel_fd, &w, err) < 0 ||
	    was_ready(&w, &ready, err) < 0)
		return -1;
	w.show = show;
	if (ready && is_whole(&w))
		return 0;
	if (clear_the_way(&w, ready, err) < 0 || write_mark(&w, err) < 0)
		return -1;
	if (FAULT_HERE("workspace.git.worktree.add", err) < 0)
		return -1;
	return make_worktree(&w, err) < 0 ? -1 : fill_worktree(&w, err);
}

/* Work tree against index, on a copy, with a git directory of ours: no filter of anybody's runs. */
static int files_differ(const struct git_repo *made, const char *run_id, bool sha256, bool *differ,
			struct error *err)
{
	_cleanup_quarantine_ struct git_quarantine q = { 0 };
	_cleanup_(index_entries_clear) struct index_entries entries = { 0 };
	_cleanup_strv_ char **env = NULL;
	_cleanup_free_ char *file = NULL;
	int status;

	if (git_quarantine_open(made, run_id, sha256, &q, err) < 0 ||
	    git_private_make(&q, err) < 0 || index_entries_host(&q, &entries, err) < 0)
		return -1;
	file = path_join(q.private, "copy");
	if (index_entries_write(&q, file, &entries, &entries, err) < 0)
		return -1;
	env = git_objects_env(&q, NULL);
	strv_push(&env, xasprintf("GIT_INDEX_FILE=%s", file));

	struct git_call call = {
		.repo = made,
		.args = GIT_ARGS("diff-files", "--quiet", "--no-ext-diff"),
		.env = env,
		.git_dir = q.private,
	};

	if (git_run(&call, NULL, &status, err) < 0)
		return -1;
	*differ = status != 0;
	return git_quarantine_remove(&q, err);
}

static int is_uncommitted(struct worktree *w, int fd, bool *yes, struct error *err)
{
	_cleanup_repo_ struct git_repo made = { 0 };
	_cleanup_buf_ struct buf untracked = { 0 };
	_cleanup_json_ json_t *about = NULL;
	enum git_kind kind;
	int status;

	*yes = false;
	if (git_repo_find(fd, w->where, w->host.cancel_fd, &made, err) < 0)
		return -1;
	if (made.kind != GIT_WORKTREE || !streq(made.common_dir, w->host.common_dir))
		return error_set(err, ERR_CONFLICT, "%s is no worktree of %s", w->where,
				 w->host.path);

	struct git_call staged = {
		.repo = &made,
		.args = GIT_ARGS("diff-index", "--cached", "--quiet", "HEAD"),
	};

	if (git_inspect(fd, w->where, w->host.cancel_fd, NULL, &kind, &about, err) < 0 ||
	    git_run(&staged, NULL, &status, err) < 0 ||
	    list_paths(&made, "--others", &untracked, err) < 0)
		return -1;
	*yes = status != 0 || untracked.len;
	return *yes ? 0 : files_differ(&made, w->run_id, git_about_is_sha256(about), yes, err);
}

int git_worktree_remove(const char *path, const char *run_id, const char *where, bool force,
			struct error *err)
{
	_cleanup_(worktree_clear) struct worktree w = { .host_fd = -1 };
	_cleanup_free_ char *mark = NULL, *ready = NULL;
	bool ours, stays, dirty = false;

	if (open_worktree(path, run_id, where, false, -1, &w, err) < 0)
		return -1;
	if (!w.where)
		return 0;
	if (read_mark(&w, &ours, err) < 0)
		return -1;

	_cleanup_close_ int fd = open(w.where, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (!ours && !w.admin && fd < 0)
		return 0;
	if (!ours)
		return error_set(err, ERR_CONFLICT, "%s was not made for this run", where);
	if (fd >= 0 && w.admin && !force && is_uncommitted(&w, fd, &dirty, err) < 0)
		return -1;
	if (dirty)
		return error_set(err, ERR_CONFLICT,
				 "%s has changes that are not committed; it stays", where);
	if (remove_tree(&w, w.where, err) < 0 || remove_tree(&w, w.admin, err) < 0 ||
	    drop_branch(&w, &stays, err) < 0)
		return -1;
	mark = path_join(w.run_dir, MARK);
	ready = path_join(w.run_dir, READY);
	if (remove_tree(&w, ready, err) < 0 || remove_tree(&w, mark, err) < 0)
		return -1;
	rmdir(w.run_dir); /* unless results are kept in it */
	return 0;
}
