/*
 * git_settle: HEAD's branch, then the index, then what was under way. Each is done only where the
 * host is as it was staged, and each is recognised when it was done before.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/sha256.h"
#include "base/path.h"
#include "base/text.h"
#include "git/cli.h"
#include "git/guard.h"
#include "git/place_repo.h"

#define MESSAGE_MAX 65536

struct settling {
	struct git_quarantine q;
	const char *run_id;
	const json_t *about;
	json_t *report;
	int fetched_fd;
	struct git_place place;
	struct git_head host;
	enum git_care care;
};

static void settling_clear(struct settling *s)
{
	git_place_clear(&s->place);
	git_quarantine_clear(&s->q);
}

static void say(struct settling *s, const char *reason)
{
	const char *before = json_str(s->report, "reason");
	_cleanup_free_ char *both = before ? xasprintf("%s; %s", before, reason) : xstrdup(reason);

	/* Called again after a crash, it has nothing new to say. */
	if (!before || !strstr(before, reason))
		json_put_str(s->report, "reason", both);
}

static int is_ancestor(struct settling *s, const char *old, const char *new, bool *yes,
		       struct error *err)
{
	struct git_call call = {
		.repo = s->q.repo,
		.args = GIT_ARGS("merge-base", "--is-ancestor", old, new),
	};
	int status;

	if (git_run(&call, NULL, &status, err) < 0)
		return -1;
	*yes = status == 0;
	return 0;
}

/* NULL when HEAD may move, else why not. */
static int why_not_move(struct settling *s, const char **why, struct error *err)
{
	const char *staged = json_str(s->about, "head");
	const char *staged_ref = json_str(s->about, "headRef");
	bool forward = true;

	*why = NULL;
	if (!streq(s->place.head_ref, staged_ref ? staged_ref : ""))
		*why = "the place ended on another branch than it began on";
	else if (!s->place.head[0])
		*why = "the place has no commit on its branch any more";
	else if (!streq(s->host.ref, s->place.head_ref))
		*why = "another branch is checked out on the host by now";
	else if (!streq(s->host.oid, staged ? staged : ""))
		*why = "the branch was moved on the host meanwhile";
	else if (staged && is_ancestor(s, staged, s->place.head, &forward, err) < 0)
		return -1;
	else if (!forward)
		*why = "the place rewrote commits that it was given, which is no fast-forward";
	return 0;
}

static int move_branch(struct settling *s, struct error *err)
{
	_cleanup_free_ char *message = xasprintf("berth: run %s", s->run_id);
	_cleanup_error_ struct error bad = { 0 };
	const char *staged = json_str(s->about, "head");
	const char *zero = "0000000000000000000000000000000000000000000000000000000000000000";
	const char *old = staged ? staged : zero + (s->q.sha256 ? 0 : 24);
	bool detached = !s->place.head_ref[0];
	/* With the old value: whoever moves it between our look and this wins. */
	struct git_call call = {
		.repo = s->q.repo,
		.args = detached ? GIT_ARGS("update-ref", "-m", message, "--no-deref", "HEAD",
					    s->place.head, old)
				 : GIT_ARGS("update-ref", "-m", message, s->place.head_ref,
					    s->place.head, old),
		.writes = true,
	};

	if (FAULT_HERE("workspace.git.settle.branch", err) < 0)
		return -1;
	if (git_run(&call, NULL, NULL, &bad) == 0) {
		memcpy(s->host.oid, s->place.head, sizeof(s->host.oid));
		json_put_bool(s->report, "moved", true);
		return 0;
	}
	if (bad.code != ERR_UNPROCESSABLE) {
		error_move(err, &bad);
		return -1;
	}
	say(s, "the branch could not be moved: somebody else holds or has moved it");
	return 0;
}

static bool head_is_settled(const struct settling *s)
{
	return streq(s->host.oid, s->place.head) && streq(s->host.ref, s->place.head_ref);
}

/*
 * In a worktree of the run's own its branch is refs/heads/berth/<run>. With refs/berth/<run> beside
 * it, "berth/<run>" would mean two things to git; the branch, which nobody else moves, is enough.
 */
static int drop_twin(struct settling *s, struct error *err)
{
	_cleanup_free_ char *kept = xasprintf("refs/berth/%s", s->run_id);
	_cleanup_free_ char *branch = xasprintf("refs/heads/berth/%s", s->run_id);
	struct git_call call = {
		.repo = s->q.repo,
		.args = GIT_ARGS("update-ref", "-d", kept),
		.writes = true,
	};

	if (!streq(branch, s->place.head_ref) || !json_bool(s->report, "moved", false))
		return 0;
	json_put_str(s->report, "ref", branch);
	return git_run(&call, NULL, NULL, err);
}

static int settle_branch(struct settling *s, struct error *err)
{
	const char *staged = json_str(s->about, "head");
	bool is_new = s->place.head[0] && !str_equal(s->place.head, staged);
	_cleanup_free_ char *guarded = NULL, *text = NULL;
	const char *why;

	if (head_is_settled(s)) {
		json_put_bool(s->report, "moved", is_new);
		return 0;
	}
	if (!is_new && streq(s->place.head_ref, json_str(s->about, "headRef") ?: ""))
		return 0; /* only the host moved */
	if (why_not_move(s, &why, err) < 0)
		return -1;
	if (why) {
		say(s, why);
		return 0;
	}
	if (git_guard_commits(&s->q, s->care, staged, s->place.head, &guarded, err) < 0)
		return -1;
	if (!guarded)
		return move_branch(s, err);
	text = xasprintf("the branch stays where it is: %s. Read the commits, then `git reset "
			 "refs/berth/%s` takes them",
			 guarded, s->run_id);
	say(s, text);
	return 0;
}

/* Whether the index is still what was staged, or what we made of it in an earlier try. */
static int look_at_index(struct settling *s, bool *as_staged, bool *ours, struct error *err)
{
	_cleanup_buf_ struct buf made = { 0 };
	const char *staged = json_str(s->about, "index");
	char now[65];
	bool there;

	if (git_file_hash(s->q.repo, "index", GIT_INDEX_MAX, now, err) < 0 ||
	    git_read_file(s->q.repo, s->q.run_dir, GIT_INDEX_MADE, 64, &made, &there, err) < 0)
		return -1;
	*as_staged = streq(now, staged ? staged : "");
	*ours = there && now[0] && streq(now, buf_str(&made));
	return 0;
}

/* *same: the place's index says what the host's says, and there is nothing to do. */
static int make_index(struct settling *s, const char *file, bool *same, struct error *err)
{
	_cleanup_(index_entries_clear) struct index_entries old = { 0 };
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_free_ char *guarded = NULL;
	char hash[65];
	bool there;

	if (json_str(s->about, "index") && index_entries_host(&s->q, &old, err) < 0)
		return -1;
	*same = index_entries_equal(&old, &s->place.index);
	if (*same)
		return 0;
	if (git_guard_index(&s->q, s->care, &old, &s->place.index, &guarded, err) < 0)
		return -1;
	if (guarded)
		return error_set(err, ERR_UNPROCESSABLE, "the index stays as it is: %s", guarded);
	if (index_entries_write(&s->q, file, &s->place.index, &old, err) < 0 ||
	    git_read_file(s->q.repo, s->q.private, "new-index", GIT_INDEX_MAX, &text, &there, err) <
		    0)
		return -1;
	if (!there)
		return error_set(err, ERR_UNPROCESSABLE, "git made no index");
	sha256_hex(buf_str(&text), text.len, hash);
	return git_quarantine_write(&s->q, s->q.run_dir, GIT_INDEX_MADE, hash, strlen(hash), err);
}

static int swap_index(struct settling *s, const char *file, struct error *err)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };
	_cleanup_free_ char *index = path_join(s->q.repo->git_dir, "index");
	_cleanup_close_ int fd = -1, dir = -1;

	if (FAULT_HERE("workspace.git.settle.index", err) < 0 ||
	    git_open_dir(s->q.repo, s->q.repo->git_dir, false, &dir, err) < 0 ||
	    owner_enter(s->q.repo, &as, err) < 0)
		return -1;
	fd = open(file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, errno, "open %s", file);
	if (fd_sync(fd, err) < 0)
		return -1;
	if (rename(file, index) < 0)
		return error_errno(err, errno, "replace %s", index);
	return dir_sync(dir, err);
}

/* The index is locked. */
static int replace_index(struct settling *s, struct error *err)
{
	_cleanup_free_ char *file = path_join(s->q.private, "new-index");
	_cleanup_error_ struct error bad = { 0 };
	bool as_staged, ours, same;

	if (look_at_index(s, &as_staged, &ours, err) < 0)
		return -1;
	if (!as_staged) {
		json_put_str(s->report, "index", ours ? "updated" : "left");
		if (!ours)
			say(s, "the index was changed on the host meanwhile and stays as it is");
		return 0;
	}
	if (make_index(s, file, &same, &bad) < 0) {
		if (bad.code != ERR_UNPROCESSABLE) {
			error_move(err, &bad);
			return -1;
		}
		json_put_str(s->report, "index", "left");
		say(s, bad.message);
		return 0;
	}
	if (same)
		return 0;
	if (swap_index(s, file, err) < 0)
		return -1;
	json_put_str(s->report, "index", "updated");
	return 0;
}

static int settle_index(struct settling *s, struct error *err)
{
	bool locked = false;

	if (!s->place.has_index)
		return 0;
	if (!head_is_settled(s)) {
		json_put_str(s->report, "index", "left");
		say(s, "the index stays as it is, since it belongs to another commit");
		return 0;
	}
	if (git_index_lock(&s->q, &locked, err) < 0)
		return -1;
	if (!locked) {
		json_put_str(s->report, "index", "left");
		say(s, "the index stays as it is: another git process holds index.lock");
		return 0;
	}

	int rc = replace_index(s, err);

	git_index_unlock(&s->q);
	return rc;
}

/* Names of commits that the host has; messages are any text. */
static int state_is_sound(struct settling *s, const char *name, const struct buf *text, bool *sound,
			  struct error *err)
{
	size_t hex = s->q.sha256 ? 64 : 40, lines = 0;

	*sound = true;
	if (str_ends(name, "_MSG") || streq(name, "MERGE_MODE"))
		return 0;
	*sound = str_ends(name, "_HEAD") && text->len % (hex + 1) == 0;
	for (size_t at = 0; at < text->len && *sound; at += hex + 1, lines++) {
		_cleanup_free_ char *oid = xstrndup(text->data + at, hex);
		_cleanup_free_ char *commit = xasprintf("%s^{commit}", oid);
		struct git_call call = { .repo = s->q.repo,
					 .args = GIT_ARGS("cat-file", "-e", commit) };
		int status;

		*sound = lines < 16 && text->data[at + hex] == '\n' &&
			 git_oid_is_valid(oid, hex, s->q.sha256);
		if (!*sound)
			return 0;
		if (git_run(&call, NULL, &status, err) < 0)
			return -1;
		*sound = status == 0;
	}
	return 0;
}

static int remove_state(struct settling *s, const char *name, struct error *err)
{
	_cleanup_(owner_leave) struct owner_rights as = { 0 };
	_cleanup_free_ char *path = path_join(s->q.repo->git_dir, name);

	if (owner_enter(s->q.repo, &as, err) < 0)
		return -1;
	if (unlink(path) < 0 && errno != ENOENT)
		return error_errno(err, errno, "remove %s", path);
	return 0;
}

/*
 * A merge that the place ended is over on the host too, and one that it began is begun. What a
 * rebase has under way never comes: its list may hold commands.
 */
static int settle_state(struct settling *s, const char *name, struct error *err)
{
	const char *staged = json_str(json_object_at(s->about, "state"), name);
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_error_ struct error bad = { 0 };
	char now[65];
	bool there, sound;

	if (git_fetched_read(s->fetched_fd, name, MESSAGE_MAX, &text, &there, &bad) < 0 || !there)
		return 0;
	if (git_file_hash(s->q.repo, name, GIT_STATE_MAX, now, err) < 0)
		return -1;
	if (!streq(now, staged ? staged : ""))
		return 0;
	if (!text.len)
		return remove_state(s, name, err);
	if (state_is_sound(s, name, &text, &sound, err) < 0)
		return -1;
	if (!sound)
		return 0;
	return git_quarantine_write(&s->q, s->q.repo->git_dir, name, text.data, text.len, err);
}

static int settle_all(struct settling *s, struct error *err)
{
	if (settle_branch(s, err) < 0 || drop_twin(s, err) < 0 || settle_index(s, err) < 0)
		return -1;
	/* What is under way belongs to HEAD and index. */
	if (!head_is_settled(s) || str_equal(json_str(s->report, "index"), "left"))
		return 0;
	for (const char *const *name = git_state_files; *name; name++) {
		if (settle_state(s, *name, err) < 0)
			return -1;
	}
	return 0;
}

int git_settle(int root_fd, const char *path, const char *run_id, const json_t *about,
	       int fetched_fd, enum git_care care, int cancel_fd, struct git_seen *seen,
	       json_t *report, struct error *err)
{
	_cleanup_repo_ struct git_repo repo = { 0 };
	_cleanup_(settling_clear) struct settling s = { .run_id = run_id,
							.about = about,
							.report = report,
							.fetched_fd = fetched_fd,
							.care = care };
	_cleanup_free_ char *why = NULL, *index_why = NULL;
	bool sha256 = git_about_is_sha256(about);

	if (!json_bool(report, "taken", false))
		return 0;
	if (git_repo_find(root_fd, path, cancel_fd, &repo, err) < 0)
		return -1;
	if (repo.kind == GIT_NONE)
		return error_set(err, ERR_CONFLICT, "%s was a git repository and is none now",
				 path);
	if (!git_place_wrote(fetched_fd))
		return 0;
	repo.seen = seen;
	if (git_quarantine_open(&repo, run_id, sha256, &s.q, err) < 0 ||
	    git_place_read(&s.q, fetched_fd, about, false, &s.place, &why, &index_why, err) < 0 ||
	    git_head_read(&repo, sha256, &s.host, err) < 0)
		return -1;
	if (!why && settle_all(&s, err) < 0)
		return -1;
	return git_quarantine_remove(&s.q, err);
}
