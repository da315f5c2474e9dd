/*
 * Staging. The phase is saved before anything happens in the place and after everything has; in
 * between a crash means that it is done again, and what is there already is not done twice. Nothing
 * runs in the place before phase staged.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "workspace/stage_internal.h"

#define TICK_FILES 64
#define TICK_BYTES ((uint64_t)4 << 20)
/* A repository may be repacked while it is listed and sent. */
#define TRIES 3

void stage_skip(struct stage *s, const char *path, const char *reason)
{
	s->skipped_count++;
	left_out_add(s->skipped, path, reason);
}

int stage_tick(struct stage *s, struct error *err)
{
	if (s->now.files - s->told.files < TICK_FILES && s->now.bytes - s->told.bytes < TICK_BYTES)
		return 0;
	s->told = s->now;
	if (s->act->cancel_fd >= 0 && latch_is_set(s->act->cancel_fd))
		return error_set(err, ERR_CANCELLED, "cancelled");
	if (s->act->progress)
		s->act->progress(s->act->progress_arg, &s->now);
	return 0;
}

static void scan_progress(void *arg, const struct scan_progress *now)
{
	struct stage *s = arg;

	s->now.files = now->files;
	s->now.bytes = now->bytes;
	if (s->act->progress)
		s->act->progress(s->act->progress_arg, &s->now);
}

static int scan_with(struct stage *s, bool hash, const char *name, struct hidden *hidden,
		     struct error *err)
{
	bool guarded = !s->state->allow_large;
	struct scan_options options = {
		.cache_dir = s->engine->cache_path,
		.hash = hash,
		.use_ignore = true,
		.skip_git = true,
		/* Of a copy it is the plan; of an overlay it is synced below. */
		.temporary = true,
		.max_entries = guarded ? WORKSPACE_MAX_FILES : 0,
		.max_bytes = guarded ? WORKSPACE_MAX_BYTES : 0,
		.hidden = hidden,
		.progress = scan_progress,
		.progress_arg = s,
		.cancel_fd = s->act->cancel_fd,
	};
	struct scan_report report;
	json_t *item;
	size_t i;

	if (workspace_scan(s->root_fd, &options, s->run_fd, name, &report, err) < 0) {
		if (err && err->code == ERR_TOO_LARGE && guarded)
			error_wrap(err,
				   "the workspace %s is too large to be brought to a place "
				   "unasked (allowLarge, --yes)",
				   s->path);
		return -1;
	}
	json_array_foreach (report.skipped, i, item)
		stage_skip(s, json_str(item, "path"), json_str(item, "reason"));
	s->skipped_count += report.skipped_count - json_array_size(report.skipped);
	s->now.files_total = report.files;
	s->now.bytes_total = report.bytes;
	s->files = report.files;
	s->dirs = report.dirs;
	s->symlinks = report.symlinks;
	s->bytes = report.bytes;
	s->hidden_by_name = report.hidden_by_name;
	scan_report_clear(&report);
	return 0;
}

int stage_scan(struct stage *s, bool hash, const char *name, struct error *err)
{
	struct hidden hidden = { .show = s->state->show };

	s->now = (struct workspace_progress){ .step = "scan" };
	if (s->state->git && hidden_load(&hidden, s->root_fd, s->path, s->state->show,
					 s->act->cancel_fd, s->state->seen, err) < 0) {
		hidden_free(&hidden);
		return -1;
	}

	int rc = scan_with(s, hash, name, &hidden, err);

	hidden_free(&hidden);
	return rc;
}

static int look_at_repository(struct stage *s, struct error *err)
{
	enum git_kind kind;
	json_t *about = NULL;

	if (!s->state->seen)
		s->state->seen = git_seen_new();
	if (git_inspect(s->root_fd, s->path, s->act->cancel_fd, s->state->seen, &kind, &about,
			err) < 0)
		return -1;
	json_decref(s->state->git);
	s->state->git = about;
	return 0;
}

static void reset_counts(struct stage *s)
{
	json_decref(s->skipped);
	s->skipped = json_array();
	s->skipped_count = s->files = s->dirs = s->symlinks = s->bytes = 0;
	s->sent = s->sent_bytes = s->removed = 0;
	s->now = s->told = (struct workspace_progress){ .step = "scan" };
	s->again = false;
}

/* The repository may move under our hands; then everything is looked at again. */
static int copy_with_patience(struct stage *s, struct error *err)
{
	for (int i = 1;; i++) {
		struct error why = { 0 };

		reset_counts(s);
		if (s->state->seen)
			git_seen_reset(s->state->seen);
		if (look_at_repository(s, err) < 0)
			return -1;
		if (stage_copy(s, &why) == 0)
			return 0;
		if (!s->again || i == TRIES) {
			error_move(err, &why);
			return -1;
		}
		error_clear(&why);
	}
}

/* Where a worktree is worked in directly, nothing is brought anywhere. */
static bool is_in_place(const struct workspace_state *state, const struct workspace_act *act)
{
	return state->mode == MODE_IN_PLACE ||
	       (state->mode == MODE_WORKTREE && str_equal(act->place_root, state->worktree));
}

static int stage_tree(struct stage *s, struct error *err)
{
	struct workspace_state *state = s->state;

	if (state->mode == MODE_WORKTREE &&
	    git_worktree_add(state->path, state->run_id, state->worktree, state->show,
			     s->act->cancel_fd, err) < 0)
		return -1;
	if (dir_open(AT_FDCWD, s->path, &s->root_fd, err) < 0)
		return error_wrap(err, "the workspace");
	reset_counts(s);
	if (is_in_place(state, s->act))
		return 0;
	if (state->mode != MODE_OVERLAY)
		return copy_with_patience(s, err);
	if (look_at_repository(s, err) < 0 || stage_scan(s, false, RESULTS_BASE, err) < 0)
		return -1;
	/* Its name is on the disk with the phase that says so. */
	return manifest_sync(s->run_fd, RESULTS_BASE, err);
}

static void write_report(struct stage *s)
{
	json_t *staged = json_object();

	if (!s->state->report)
		s->state->report = json_object();
	json_put_int(staged, "files", (int64_t)s->files);
	json_put_int(staged, "directories", (int64_t)s->dirs);
	json_put_int(staged, "symlinks", (int64_t)s->symlinks);
	json_put_int(staged, "bytes", (int64_t)s->bytes);
	json_put_int(staged, "sent", (int64_t)s->sent);
	json_put_int(staged, "sentBytes", (int64_t)s->sent_bytes);
	json_put_int(staged, "removed", (int64_t)s->removed);
	json_put_ref(staged, "skipped", s->skipped);
	json_put_int(staged, "skippedCount", (int64_t)s->skipped_count);
	json_put_int(staged, "hiddenByName", (int64_t)s->hidden_by_name);
	json_put_new(s->state->report, "staged", staged);
}

static int begin(struct stage *s, struct error *err)
{
	struct workspace_state *state = s->state;

	free(state->place_id);
	free(state->place_root);
	state->place_id = xstrdup(s->act->place->place_id);
	state->place_root = xstrdup(s->act->place_root);
	state->phase = PHASE_STAGING;
	/* Nothing is put into a place that sees the tree itself: there is nothing to know of. */
	return state->mode == MODE_OVERLAY ? 0
					   : workspace_state_save(&s->engine->results, state, err);
}

static int finish(struct stage *s, struct error *err)
{
	write_report(s);
	if (s->act->progress)
		s->act->progress(s->act->progress_arg, &s->now);
	s->state->phase = PHASE_STAGED;
	if (workspace_state_save(&s->engine->results, s->state, err) == 0)
		return 0;
	s->state->phase = PHASE_STAGING;
	return -1;
}

int workspace_stage(struct workspace_engine *engine, struct workspace_state *state,
		    const struct workspace_act *act, struct error *err)
{
	struct stage s = {
		.engine = engine,
		.state = state,
		.act = act,
		.path = state->worktree ? state->worktree : state->path,
		.root_fd = -1,
		.run_fd = -1,
	};
	int rc = -1;

	if (state->mode == MODE_NONE || state->phase == PHASE_STAGED)
		return 0;
	if (state->phase > PHASE_STAGED)
		return error_set(err, ERR_RUN_STATE, "the files of run %s are being collected",
				 state->run_id);
	if (FAULT_HERE("workspace.stage.before", err) == 0 &&
	    results_dir(&engine->results, state->run_id, true, &s.run_fd, err) == 0 &&
	    begin(&s, err) == 0 && FAULT_HERE("workspace.stage.begun", err) == 0 &&
	    stage_tree(&s, err) == 0 && finish(&s, err) == 0)
		rc = FAULT_HERE("workspace.stage.after", err);
	json_decref(s.skipped);
	free(s.chunks);
	close_fdp(&s.root_fd);
	close_fdp(&s.run_fd);
	return rc;
}
