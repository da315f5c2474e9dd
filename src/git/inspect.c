#include "git/about.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/sha256.h"
#include "base/path.h"
#include "base/text.h"
#include "git/cli.h"
#include "git/repo_config.h"

#define ENTRIES_MAX (1U << 29)

const char *const git_state_files[] = {
	"AUTO_MERGE", "CHERRY_PICK_HEAD", "MERGE_HEAD", "MERGE_MODE",
	"MERGE_MSG",  "REVERT_HEAD",      "SQUASH_MSG", NULL,
};

bool git_about_is_sha256(const json_t *about)
{
	return str_equal(json_str(about, "objectFormat"), "sha256");
}

int git_file_hash(const struct git_repo *repo, const char *name, size_t max, char out[65],
		  struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };
	bool there;

	out[0] = '\0';
	if (git_read_file(repo, repo->git_dir, name, max, &text, &there, err) < 0)
		return -1;
	if (there)
		sha256_hex(buf_str(&text), text.len, out);
	return 0;
}

static void put_or_null(json_t *about, const char *key, const char *text)
{
	json_put_str(about, key, text[0] ? text : NULL);
}

static int fill_state(const struct git_repo *repo, json_t *about, struct error *err)
{
	_cleanup_json_ json_t *state = json_object();
	char hash[65];

	for (const char *const *name = git_state_files; *name; name++) {
		if (git_file_hash(repo, *name, GIT_STATE_MAX, hash, err) < 0)
			return -1;
		if (hash[0])
			json_put_str(state, *name, hash);
	}
	json_put_ref(about, "state", state);
	return 0;
}

int git_about_fill(const struct git_repo *repo, json_t *about, struct buf *index, struct error *err)
{
	struct git_head head = { 0 };
	char hash[65] = "";
	bool there;

	if (git_head_read(repo, git_about_is_sha256(about), &head, err) < 0)
		return -1;
	put_or_null(about, "head", head.oid);
	put_or_null(about, "headRef", head.ref);
	buf_reset(index);
	if (git_read_file(repo, repo->git_dir, "index", GIT_INDEX_MAX, index, &there, err) < 0)
		return -1;
	if (there)
		sha256_hex(buf_str(index), index->len, hash);
	put_or_null(about, "index", hash);
	return fill_state(repo, about, err);
}

static bool is_dir_at(int fd, const char *name)
{
	struct stat st;

	return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static bool looks_bare(int root_fd)
{
	struct stat st;

	return fstatat(root_fd, "HEAD", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       is_dir_at(root_fd, "objects") && is_dir_at(root_fd, "refs");
}

/* Before git looks at it: an old git would only say that it does not know the extension. */
static int refuse_reftable(const struct git_repo *repo, struct error *err)
{
	_cleanup_error_ struct error none = { 0 };
	_cleanup_free_ char *dir = path_join(repo->common_dir, "reftable");
	_cleanup_close_ int fd = -1;

	if (git_open_dir(repo, dir, false, &fd, &none) < 0)
		return 0;
	return error_set(err, ERR_UNPROCESSABLE,
			 "%s keeps its refs in reftable format, which cannot be staged; use mode "
			 "in_place, or git refs migrate --ref-format=files",
			 repo->path);
}

static int refuse_settings(const struct git_repo *repo, const struct git_settings *settings,
			   struct error *err)
{
	if (settings->refused)
		return error_set(err, ERR_UNPROCESSABLE,
				 "%s cannot be staged as a repository: %s; use mode in_place",
				 repo->path, settings->refused);
	if (settings->partial)
		return error_set(err, ERR_UNPROCESSABLE,
				 "%s is a partial clone: objects it lacks cannot be fetched from "
				 "the place; stage a full clone, or use mode in_place",
				 repo->path);
	return 0;
}

/*
 * Whether an entry of the index may be a submodule, by the bytes of its mode. A false alarm costs
 * one git ls-files, as does a split index, whose other half we did not look into.
 */
static bool may_have_submodules(const struct buf *index)
{
	return index->len && (memmem(index->data, index->len, "\0\0\xe0\0", 4) ||
			      memmem(index->data, index->len, "link", 4));
}

static bool is_checked_out(const struct git_repo *repo, const char *path)
{
	_cleanup_error_ struct error none = { 0 };
	_cleanup_free_ char *inner = xasprintf("%s/.git", path);
	_cleanup_close_ int fd = -1;

	return path_open_beneath(repo->root_fd, inner, O_PATH | O_NOFOLLOW, 0, &fd, &none) == 0;
}

static int refuse_submodules(const struct git_repo *repo, const struct buf *index,
			     struct error *err)
{
	struct git_call call = {
		.repo = repo,
		.args = GIT_ARGS("ls-files", "--stage", "-z"),
		.max_output = ENTRIES_MAX,
	};
	_cleanup_buf_ struct buf list = { 0 };

	if (!may_have_submodules(index))
		return 0;
	if (git_run(&call, &list, NULL, err) < 0)
		return error_wrap(err, "index of %s", repo->path);
	for (size_t at = 0; at < list.len; at += strlen(list.data + at) + 1) {
		const char *line = list.data + at, *path = strchr(line, '\t');

		if (!path || !str_starts(line, "160000 ") || !is_checked_out(repo, path + 1))
			continue;
		return error_set(err, ERR_UNPROCESSABLE,
				 "%s has the submodule %s checked out, and submodules cannot be "
				 "staged: run git submodule deinit %s, or use mode in_place",
				 repo->path, path + 1, path + 1);
	}
	return 0;
}

static int refuse_broken_head(const struct git_repo *repo, const json_t *about, struct error *err)
{
	const char *head = json_str(about, "head");
	_cleanup_free_ char *commit = head ? xasprintf("%s^{commit}", head) : NULL;
	struct git_call call = { .repo = repo, .args = GIT_ARGS("cat-file", "-e", commit) };
	int status;

	if (!head)
		return 0;
	if (git_run(&call, NULL, &status, err) < 0)
		return -1;
	if (status != 0)
		return error_set(
			err, ERR_UNPROCESSABLE,
			"the commit that is checked out in %s cannot be read; see git fsck",
			repo->path);
	return 0;
}

static int inspect(const struct git_repo *repo, json_t *about, struct error *err)
{
	_cleanup_(git_settings_clear) struct git_settings settings = { 0 };
	_cleanup_buf_ struct buf index = { 0 };

	if (refuse_reftable(repo, err) < 0 || git_settings_read(repo, &settings, err) < 0 ||
	    refuse_settings(repo, &settings, err) < 0)
		return -1;
	json_put_str(about, "kind", repo->kind == GIT_WORKTREE ? "worktree" : "directory");
	json_put_str(about, "objectFormat", settings.sha256 ? "sha256" : "sha1");
	json_put_new(about, "warnings", json_array());
	if (settings.filters)
		json_array_append_new(json_array_at(about, "warnings"),
				      json_string("filters are set up for this repository (as for "
						  "Git LFS); the place does not know them, files "
						  "under a filter may look changed there"));
	if (git_about_fill(repo, about, &index, err) < 0 ||
	    refuse_broken_head(repo, about, err) < 0)
		return -1;
	return refuse_submodules(repo, &index, err);
}

int git_inspect(int root_fd, const char *path, int cancel_fd, struct git_seen *seen,
		enum git_kind *kind, json_t **about, struct error *err)
{
	_cleanup_repo_ struct git_repo repo = { 0 };
	_cleanup_json_ json_t *found = json_object();

	*kind = GIT_NONE;
	*about = NULL;
	if (git_repo_find(root_fd, path, cancel_fd, &repo, err) < 0)
		return -1;
	if (repo.kind == GIT_NONE && looks_bare(root_fd))
		return error_set(err, ERR_UNPROCESSABLE,
				 "%s is a bare repository: clone it and stage the clone", path);
	if (repo.kind == GIT_NONE)
		return 0;
	repo.seen = seen;
	if (inspect(&repo, found, err) < 0)
		return -1;
	*kind = repo.kind;
	*about = steal(found);
	return 0;
}
