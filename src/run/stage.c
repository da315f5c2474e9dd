/*
 * The steps of a run that move its files: how they will get there (prepare, before a place is asked
 * for), that they are there before anything runs (stage), and that what the command did comes home
 * (collect).
 */
#include "run/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "run/files.h"
#include "run/workspace_request.h"
#include "workspace/overlay.h"

/*
 * Whether the caller may name the directory was judged when the run was made, of where the path led
 * then; somebody may have put a link there since.
 */
static int check_path(const char *path, struct error *err)
{
	_cleanup_free_ char *now = realpath(path, NULL);

	if (!now)
		return error_errno(err, errno, "the workspace \"%.300s\"", path);
	if (!streq(now, path))
		return error_set(err, ERR_UNPROCESSABLE,
				 "the workspace \"%.200s\" has been moved since the run was asked "
				 "for: it is at \"%.200s\" now",
				 path, now);
	return 0;
}

/* A place of its own kind has its workspace in one directory; only copies can be elsewhere. */
static int check_root(const struct run_job *w, struct error *err)
{
	if (!json_str(w->run->workspace, "root") || w->files.mode == MODE_COPY)
		return 0;
	return error_set(err, ERR_UNPROCESSABLE,
			 "workspace.root goes with mode copy: in mode %s the place decides where "
			 "the workspace is",
			 workspace_mode_name(w->files.mode));
}

static int prepare_as(struct run_job *w, enum workspace_mode mode, struct error *err)
{
	const json_t *asked = w->run->workspace;
	struct workspace_engine *engine = w->o->runs->engine;
	struct workspace_request wish = {
		.run_id = w->run->id,
		.path = json_str(asked, "path"),
		.mode = mode,
		.collect = !str_equal(json_str(asked, "collect"), "manual"),
		.careful = json_bool(asked, "careful", false),
		.show = json_array_at(asked, "show"),
		.allow_large = json_bool(asked, "allowLarge", false),
		.is_local = w->environment.driver == DRIVER_LOCAL,
		.mounts = environment_traits(w->o->makers, &w->environment).mounts_workspace,
		.takes_relay = files_take_relay(&w->environment),
	};

	workspace_state_clear(&w->files);
	if (files_are_shared(w->o->runs, w->run->id, wish.path, &wish.shared, err) < 0 ||
	    files_prepare(w->o->runs, &wish, &w->files, err) < 0)
		return -1;
	if (w->files.mode != MODE_OVERLAY)
		return 0;
	/* What the place must not see of the tree is decided before there is a place. */
	return overlay_prepare(&engine->results, &w->files, w->o->cancel_fd, &w->masks, err);
}

static enum workspace_mode mode_asked(const struct run_job *w)
{
	enum workspace_mode mode = MODE_AUTO;

	workspace_mode_parse(json_str(w->run->workspace, "mode"), &mode);
	/* Only a copy can be where the caller wants it. */
	if (mode == MODE_AUTO && json_str(w->run->workspace, "root"))
		return MODE_COPY;
	return mode;
}

/* Only where nobody said how: who asked for an overlay is told that it cannot be. */
int job_copy_instead(struct run_job *w, struct error *err)
{
	if (mode_asked(w) != MODE_AUTO || w->files.mode != MODE_OVERLAY)
		return -1;
	log_info("run %s: its workspace is copied: %s", w->run->id, err->message);
	error_clear(err);
	return prepare_as(w, MODE_COPY, err);
}

/* By the settings of today, which may be narrower than those under which the run was queued. */
static int check_allowed(const struct run_job *w, struct error *err)
{
	return workspace_allowed(w->o->runs, &w->actor, w->run->company_id, w->files.path,
				 workspace_mode_name(w->files.mode), err);
}

int job_prepare(struct run_job *w, struct error *err)
{
	int prepared;

	if (!w->run->workspace)
		return 0;
	if (check_path(json_str(w->run->workspace, "path"), err) < 0)
		return step_failed(err, ERR_REALIZE, "prepare the workspace for", &w->environment);
	prepared = prepare_as(w, mode_asked(w), err);
	if (prepared < 0 && err->code == ERR_UNPROCESSABLE)
		prepared = job_copy_instead(w, err);
	if (prepared == 0)
		prepared = check_root(w, err);
	if (prepared == 0)
		prepared = check_allowed(w, err);
	if (prepared == 0)
		return 0;
	if (latch_is_set(w->o->cancel_fd))
		return error_recode(err, ERR_CANCELLED);
	return step_failed(err, ERR_REALIZE, "prepare the workspace for", &w->environment);
}

/* ---- stage: they are there before anything runs ---- */

/* A directory of the workspace that was asked for by its name here is meant by its name there. */
static void find_directory(struct run_job *w, const char *shown)
{
	const char *beneath = w->run->cwd ? path_beneath(w->files.path, w->run->cwd) : "";

	if (!beneath)
		return;
	free(w->cwd);
	w->cwd = xasprintf("%s%s", shown, beneath);
}

static struct files files_of(struct run_job *w, int cancel_fd)
{
	return (struct files){ .runs = w->o->runs,
			       .id = w->run->id,
			       .run = w->run,
			       .state = &w->files,
			       .place = &w->place,
			       .generation = w->lease.generation,
			       .cancel_fd = cancel_fd };
}

int job_stage(struct run_job *w, struct error *err)
{
	_cleanup_free_ char *root = NULL, *shown = NULL;
	struct files files = files_of(w, w->o->cancel_fd);
	int staged;

	if (!w->files.path)
		return 0;
	files_root(&files, w->lease.metadata, json_str(w->run->workspace, "root"), &root, &shown);
	files.place_root = root;
	staged = files_stage(&files, err);
	runs_set_progress(w->o->runs, w->run->id, NULL);
	if (staged < 0 && job_is_cancelled(w))
		return error_set(err, ERR_CANCELLED, "cancelled while the workspace was staged");
	if (staged < 0 && latch_is_set(w->o->cancel_fd))
		return error_recode(err, ERR_CANCELLED);
	/* A code of its own: whoever asked may want to allow it. */
	if (staged < 0)
		return step_failed(err, err->code == ERR_TOO_LARGE ? ERR_TOO_LARGE : ERR_REALIZE,
				   "stage the workspace into", &w->environment);
	find_directory(w, shown);
	/* It goes to the row with what job_describe_place finds. */
	files_report_make(&files, NULL, 0, EVENT_WORKSPACE_STAGED, &w->report);
	return 0;
}

/* ---- collect: what the command did comes home, whatever became of it ---- */

/* The lease still holds the place: it is worth keeping. */
static bool place_is_ours(struct run_job *w)
{
	_cleanup_lease_ struct lease lease = { 0 };

	return lease_get(w->o->leases, w->lease.id, &lease, NULL, NULL) == 0 &&
	       lease.status == LEASE_ACTIVE && lease.generation == w->lease.generation;
}

/* Nothing is left there that could be fetched another time. */
static bool is_gone(const struct error *failure)
{
	return failure->code == ERR_LEASE_LOST || failure->code == ERR_LEASE_ENDED ||
	       failure->code == ERR_STALE_GENERATION;
}

static int bring_home(const struct files *files, struct error *err)
{
	if (files_fetch(files, err) < 0)
		return error_wrap(err, "the work could not be fetched from its place");
	if (!files->state->collect)
		return 0;
	if (files_apply(files, false, err) < 0)
		return error_wrap(err, "the work is kept, but could not be put into \"%.200s\"",
				  files->state->path);
	return 0;
}

/*
 * Never changes what the run came to. What cannot be fetched stays in its place, which is kept for
 * a while; what cannot be put into the workspace stays with the results.
 */
void job_collect(struct run_job *w)
{
	struct files files = files_of(w, w->o->runs->stop_fd);
	_cleanup_error_ struct error failure = { 0 };

	files_report_clear(&w->report);
	if (!w->files.path)
		return;
	/* No command, no work. */
	if (!w->began || w->files.phase < PHASE_STAGED) {
		workspace_drop(w->o->runs->engine, w->run->id, NULL);
		return;
	}
	if (bring_home(&files, &failure) < 0) {
		/* The next server does it again. */
		if (!runs_pause(w->o->runs, 0)) {
			w->left_behind = true;
			return;
		}
		log_warn("run %s: %s", w->run->id, failure.message);
		if (w->files.phase < PHASE_FETCHED && !is_gone(&failure) && place_is_ours(w))
			w->kept_until = clock_now(w->o->clock) + PLACE_KEPT_MS;
	}
	runs_set_progress(w->o->runs, w->run->id, NULL);
	/* It goes to the row with the run's end. */
	files_report_make(&files, &failure, w->kept_until, EVENT_WORKSPACE_COLLECTED, &w->report);
}
