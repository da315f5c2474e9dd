/*
 * Bringing the work of a run home: fetch, apply, drop. Each can be done again after a crash: the
 * phase says how far it came, and `changes` is there only when every blob is.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/text.h"
#include "git/git.h"
#include "workspace/apply_stage.h"
#include "workspace/collect_internal.h"
#include "workspace/overlay.h"

void fetch_refuse(struct fetch *f, const char *path, const char *reason)
{
	f->refused_count++;
	left_out_add(f->refused, path, reason);
}

int fetch_tick(struct fetch *f, struct error *err)
{
	struct pollfd p = { .fd = f->act->cancel_fd, .events = POLLIN };

	f->now.step = "fetch";
	f->now.files = f->files;
	f->now.bytes = f->bytes;
	if (f->act->progress)
		f->act->progress(f->act->progress_arg, &f->now);
	if (p.fd >= 0 && poll(&p, 1, 0) > 0)
		return error_set(err, ERR_CANCELLED,
				 "fetching was cancelled; the place still has the files");
	return 0;
}

void fetch_put_before(const struct fetch *f, const struct tree_entry *entry, struct tree_entry *out)
{
	if (!manifest_find(f->place, entry->path, entry->path_len, out))
		memset(out, 0, sizeof(*out));
}

bool fetch_same_bytes(const struct tree_entry *a, const struct tree_entry *b)
{
	return (a->flags & b->flags & TREE_HAS_HASH) && a->size == b->size &&
	       memcmp(a->sha256, b->sha256, TREE_HASH_SIZE) == 0;
}

static const char *tree_path(const struct workspace_state *state)
{
	return state->worktree ? state->worktree : state->path;
}

static int open_tree(const struct workspace_state *state, int *fd, struct error *err)
{
	if (dir_open(AT_FDCWD, tree_path(state), fd, err) < 0)
		return error_wrap(err, "the workspace");
	return 0;
}

static int move_to(struct workspace_engine *engine, struct workspace_state *state,
		   enum workspace_phase phase, struct error *err)
{
	state->phase = phase;
	return workspace_state_save(&engine->results, state, err);
}

/* --- fetch --- */

static void fetch_clear(struct fetch *f)
{
	manifest_close(f->base);
	manifest_close(f->place);
	json_decref(f->refused);
	close_fdp(&f->run_fd);
}

static bool has_file(int dir_fd, const char *name)
{
	return faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int fetch_copy(struct fetch *f, struct manifest_writer *changes, struct error *err)
{
	struct look_found found;
	uint64_t git_entries = 0;
	const char *sure;

	if (manifest_open(f->run_fd, RESULTS_PLACE, &f->place, err) < 0)
		return error_wrap(err, "what was staged into the place");
	if ((f->state->git ? fetch_look_git(f, &git_entries, err) : fetch_look_made(f, err)) < 0)
		return -1;
	if (git_entries && fetch_get(f, FETCH_GIT, NULL, err) < 0)
		return error_wrap(err, "fetch the repository");
	if (fetch_look(f, &found, err) < 0 || FAULT_HERE("workspace.fetch.looked", err) < 0 ||
	    fetch_make_sure(f, &found, &sure, err) < 0)
		return -1;
	if (fetch_get(f, sure, changes, err) < 0)
		return error_wrap(err, "fetch the files");
	return 0;
}

static int fetch_layer(struct fetch *f, struct manifest_writer *changes, struct error *err)
{
	const struct overlay_limits limits = { .max_entries = f->max_entries,
					       .max_bytes = f->max_bytes,
					       .cancel_fd = f->act->cancel_fd,
					       .show = f->state->show };
	_cleanup_close_ int upper = -1, host = -1;

	if (dir_remove_tree(f->run_fd, RESULTS_GIT, err) < 0 ||
	    open_tree(f->state, &host, err) < 0 ||
	    dir_open(AT_FDCWD, f->act->upper_path, &upper, err) < 0 ||
	    overlay_fetch(upper, f->base, host, f->run_fd, &limits, changes, f->refused, err) < 0)
		return error_wrap(err, "fetch what the place wrote");
	f->refused_count = json_array_size(f->refused);
	return 0;
}

/* Contents of files, or files of the place's repository. */
static bool got_contents(const struct fetch *f)
{
	return has_file(f->run_fd, RESULTS_BLOBS) || has_file(f->run_fd, RESULTS_GIT "/.git");
}

/* Everything that fetch makes is on disk before the name `changes` says so. */
static int fetch_changes(struct fetch *f, struct error *err)
{
	struct manifest_writer *changes;
	bool layer = f->act->upper_path && !has_file(f->run_fd, RESULTS_PLACE);

	if (!layer && !has_file(f->run_fd, RESULTS_PLACE))
		return error_set(err, ERR_UNAVAILABLE,
				 "what the place wrote is not to be found: its layer is gone");
	if (manifest_open(f->run_fd, RESULTS_BASE, &f->base, err) < 0)
		return error_wrap(err, "what was staged");
	if (blobs_clear(f->run_fd, err) < 0 ||
	    manifest_create(f->run_fd, RESULTS_CHANGES, &changes, err) < 0)
		return -1;
	if ((layer ? fetch_layer(f, changes, err) : fetch_copy(f, changes, err)) < 0 ||
	    FAULT_HERE("workspace.fetch.got", err) < 0 ||
	    (got_contents(f) && blobs_sync(f->run_fd, err) < 0) ||
	    FAULT_HERE("workspace.fetch.synced", err) < 0) {
		manifest_abandon(changes);
		return -1;
	}
	return manifest_commit(changes, err);
}

static void remove_scraps(int run_fd)
{
	static const char *const scraps[] = { FETCH_SEEN, FETCH_KNOWN, FETCH_SURE, FETCH_GIT };

	for (size_t i = 0; i < ARRAY_SIZE(scraps); i++)
		unlinkat(run_fd, scraps[i], 0);
}

static json_t *report_of(struct workspace_state *state)
{
	if (!state->report)
		state->report = json_object();
	return state->report;
}

static void note_fetched(struct fetch *f)
{
	json_t *fetched = json_object();

	json_put_int(fetched, "files", (int64_t)f->files);
	json_put_int(fetched, "bytes", (int64_t)f->bytes);
	json_put_ref(fetched, "refused", f->refused);
	json_put_int(fetched, "refusedCount", (int64_t)f->refused_count);
	json_put_new(report_of(f->state), "fetched", fetched);
}

/* The place works in the tree itself, or brought none: there is nothing to fetch. */
static bool is_direct(const struct workspace_state *state, int run_fd,
		      const struct workspace_act *act)
{
	return state->mode == MODE_IN_PLACE || state->mode == MODE_NONE ||
	       (state->mode == MODE_WORKTREE && !act->upper_path &&
		!has_file(run_fd, RESULTS_PLACE));
}

int workspace_fetch(struct workspace_engine *engine, struct workspace_state *state,
		    const struct workspace_act *act, struct error *err)
{
	_cleanup_(fetch_clear) struct fetch f = {
		.engine = engine,
		.state = state,
		.act = act,
		.run_fd = -1,
		.max_entries =
			engine->max_fetch_entries ? engine->max_fetch_entries : FETCH_MAX_ENTRIES,
		.max_bytes = engine->max_fetch_bytes ? engine->max_fetch_bytes : FETCH_MAX_BYTES,
		.refused = json_array(),
	};

	if (state->phase >= PHASE_FETCHED)
		return 0;
	if (state->phase < PHASE_STAGED)
		return error_set(err, ERR_CONFLICT,
				 "the workspace was not staged, so there is nothing to fetch");
	if (results_dir(&engine->results, state->run_id, false, &f.run_fd, err) < 0 ||
	    FAULT_HERE("workspace.fetch.before", err) < 0)
		return -1;
	if (!is_direct(state, f.run_fd, act)) {
		/* A crash between `changes` and the phase: it is all there. */
		bool complete =
			state->phase == PHASE_FETCHING && has_file(f.run_fd, RESULTS_CHANGES);

		if (move_to(engine, state, PHASE_FETCHING, err) < 0 ||
		    (!complete && fetch_changes(&f, err) < 0) ||
		    FAULT_HERE("workspace.fetch.kept", err) < 0)
			return -1;
		if (!complete)
			note_fetched(&f);
		remove_scraps(f.run_fd);
	}
	if (move_to(engine, state, PHASE_FETCHED, err) < 0)
		return -1;
	return FAULT_HERE("workspace.fetch.after", err);
}

/* --- apply --- */

struct home {
	struct workspace_engine *engine;
	struct workspace_state *state;
	const struct apply_options *options;
	int tree_fd, git_fd; /* git_fd -1: no repository came */
	json_t *git;         /* git_import's report */
	struct git_seen *seen;
};

static void home_clear(struct home *h)
{
	close_fdp(&h->tree_fd);
	close_fdp(&h->git_fd);
	json_decref(h->git);
	git_seen_free(h->seen);
}

/* What the repository brought, before the files. */
static int import_git(struct home *h, struct error *err)
{
	_cleanup_close_ int run_fd = -1;

	if (!h->state->git)
		return 0;
	if (results_dir(&h->engine->results, h->state->run_id, false, &run_fd, err) < 0)
		return -1;
	h->git_fd = openat(run_fd, RESULTS_GIT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (h->git_fd < 0)
		return errno == ENOENT ? 0 : error_errno(err, errno, "open the fetched repository");
	if (open_tree(h->state, &h->tree_fd, err) < 0 ||
	    FAULT_HERE("workspace.apply.import", err) < 0)
		return -1;
	h->seen = git_seen_new();
	return git_import(h->tree_fd, tree_path(h->state), h->state->run_id, h->state->git,
			  h->git_fd, h->options->cancel_fd, h->seen, &h->git, err);
}

static int settle_git(struct home *h, struct error *err)
{
	enum git_care care = h->state->worktree  ? GIT_CARE_NONE
			     : h->state->careful ? GIT_CARE_ALL
						 : GIT_CARE_RULES;

	if (h->git_fd < 0 || !h->git)
		return 0;
	if (FAULT_HERE("workspace.apply.settle", err) < 0)
		return -1;
	return git_settle(h->tree_fd, tree_path(h->state), h->state->run_id, h->state->git,
			  h->git_fd, care, h->options->cancel_fd, h->seen, h->git, err);
}

static int apply_all(struct home *h, struct error *err)
{
	_cleanup_json_ json_t *counts = json_object();
	struct apply_report report;

	if (import_git(h, err) < 0 ||
	    results_apply(&h->engine->results, h->state, h->options, NULL, NULL, &report, err) <
		    0 ||
	    settle_git(h, err) < 0)
		return -1;
	report_counts(&report, h->state, counts);
	json_put_ref(report_of(h->state), "counts", counts);
	if (h->git)
		json_put_ref(report_of(h->state), "git", h->git);
	return 0;
}

static bool has_changes(const struct workspace_engine *engine, const struct workspace_state *state)
{
	_cleanup_close_ int fd = -1;

	return results_dir(&engine->results, state->run_id, false, &fd, NULL) == 0 &&
	       has_file(fd, RESULTS_CHANGES);
}

/* What would be, on the state in memory only. */
static int foretell(struct workspace_engine *engine, struct workspace_state *state,
		    const struct apply_options *options, struct error *err)
{
	json_t *report = report_foretold(engine, state, options, err);

	if (!report)
		return -1;
	json_decref(state->report);
	state->report = report;
	return 0;
}

int workspace_apply(struct workspace_engine *engine, struct workspace_state *state,
		    const struct apply_options *options, struct error *err)
{
	_cleanup_(home_clear) struct home h = {
		.engine = engine, .state = state, .options = options, .tree_fd = -1, .git_fd = -1
	};

	if (state->phase < PHASE_FETCHED)
		return error_set(err, ERR_CONFLICT,
				 "the files of run %s have not been fetched from its place yet",
				 state->run_id);
	if (options->dry_run)
		return foretell(engine, state, options, err);
	if (FAULT_HERE("workspace.apply.before", err) < 0 ||
	    (state->phase < PHASE_APPLYING && move_to(engine, state, PHASE_APPLYING, err) < 0))
		return -1;
	if (has_changes(engine, state) && apply_all(&h, err) < 0)
		return -1;
	if (!state->applied_at)
		state->applied_at = clock_now(engine->clock);
	if (FAULT_HERE("workspace.apply.applied", err) < 0 ||
	    move_to(engine, state, PHASE_APPLIED, err) < 0)
		return -1;
	return FAULT_HERE("workspace.apply.after", err);
}

/* --- drop --- */

/* Its branch stays if it has commits; what is not committed in it stays with it. */
static int drop_worktree(const struct workspace_state *state, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };

	if (!state->worktree ||
	    git_worktree_remove(state->path, state->run_id, state->worktree, false, &why) == 0)
		return 0;
	if (why.code == ERR_CONFLICT)
		return 0;
	error_move(err, &why);
	return -1;
}

/* A workspace that is gone has nothing of ours any more. */
static int drop_outside(const struct workspace_state *state, struct error *err)
{
	_cleanup_close_ int fd = -1;

	if (!state->path || open_tree(state, &fd, NULL) < 0)
		return 0;
	if (staging_drop(fd, state->run_id, err) < 0)
		return -1;
	if (state->git && git_forget(state->path, state->run_id, err) < 0)
		return -1;
	return drop_worktree(state, err);
}

int workspace_drop(struct workspace_engine *engine, const char *run_id, struct error *err)
{
	_cleanup_(workspace_state_clear) struct workspace_state state = { 0 };
	_cleanup_error_ struct error why = { 0 };
	_cleanup_close_ int fd = -1;

	if (results_dir(&engine->results, run_id, false, &fd, err) < 0)
		return -1;
	/* Without a state nothing was ever done outside of its directory. */
	if (workspace_state_load(&engine->results, run_id, &state, &why) < 0) {
		if (why.code != ERR_NOT_FOUND) {
			error_move(err, &why);
			return -1;
		}
		return results_drop(&engine->results, run_id, err);
	}
	if (drop_outside(&state, err) < 0)
		return error_wrap(err, "drop what run %s left", run_id);
	return results_drop(&engine->results, run_id, err);
}
