#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "git/cli.h"
#include "git/quarantine.h"

#define LIST_MAX (16 << 20)

static int list_kept(const struct git_repo *repo, const char *run_id, struct buf *list,
		     struct error *err)
{
	_cleanup_free_ char *head = xasprintf("refs/berth/%s", run_id);
	_cleanup_free_ char *branches = xasprintf("refs/berth-branches/%s", run_id);
	_cleanup_free_ char *tags = xasprintf("refs/berth-tags/%s", run_id);
	_cleanup_free_ char *others = xasprintf("refs/berth-refs/%s", run_id);
	struct git_call call = {
		.repo = repo,
		.args = GIT_ARGS("for-each-ref", "--format=delete %(refname)", head, branches, tags,
				 others),
		.max_output = LIST_MAX,
	};

	return git_run(&call, list, NULL, err);
}

static int delete_refs(const struct git_repo *repo, const struct buf *list, struct error *err)
{
	struct git_call call = {
		.repo = repo,
		.args = GIT_ARGS("update-ref", "--stdin"),
		.input = buf_str(list),
		.input_len = list->len,
		.writes = true,
	};

	return list->len ? git_run(&call, NULL, NULL, err) : 0;
}

static int remove_rest(const struct git_repo *repo, const char *run_id, struct error *err)
{
	_cleanup_quarantine_ struct git_quarantine q = { 0 };
	_cleanup_(owner_leave) struct owner_rights as = { 0 };
	_cleanup_free_ char *made = NULL;

	/* Opening it anew is what removes a lock that a crash left. */
	if (git_quarantine_open(repo, run_id, false, &q, err) < 0 ||
	    git_quarantine_remove(&q, err) < 0 || owner_enter(repo, &as, err) < 0)
		return -1;
	made = path_join(q.run_dir, GIT_INDEX_MADE);
	if (unlink(made) < 0 && errno != ENOENT)
		return error_errno(err, errno, "remove %s", made);
	rmdir(q.run_dir); /* what else is in it belongs to the run's worktree */
	return 0;
}

int git_forget(const char *path, const char *run_id, struct error *err)
{
	_cleanup_repo_ struct git_repo repo = { 0 };
	_cleanup_buf_ struct buf list = { 0 };
	_cleanup_close_ int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (root < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0
							   : error_errno(err, errno, "%s", path);
	if (!id_is_valid(run_id))
		return error_set(err, ERR_INTERNAL, "no run id");
	if (git_repo_find(root, path, -1, &repo, err) < 0)
		return -1;
	if (repo.kind == GIT_NONE)
		return 0;
	if (list_kept(&repo, run_id, &list, err) < 0 || delete_refs(&repo, &list, err) < 0)
		return -1;
	return remove_rest(&repo, run_id, err);
}
