/*
 * What a run brought home, after its end: looked at, put into the workspace, dropped. And what a
 * server that died left half-way is gone on with.
 */
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "record/activity.h"
#include "run/files.h"
#include "run/row.h"

/* One at a time works on the results of a run. */
struct hold {
	struct hold *next;
	struct runs *runs;
	char id[ID_SIZE];
	bool taken;
};

static bool is_held(const struct runs *runs, const char *id)
{
	for (const struct hold *hold = runs->holds; hold; hold = hold->next) {
		if (streq(hold->id, id))
			return true;
	}
	return false;
}

static int hold_take(struct hold *hold, struct runs *runs, const char *id, struct error *err)
{
	hold->runs = runs;
	id_copy(hold->id, id);
	pthread_mutex_lock(&runs->lock);
	hold->taken = !is_held(runs, id);
	if (hold->taken) {
		hold->next = runs->holds;
		runs->holds = hold;
	}
	pthread_mutex_unlock(&runs->lock);
	return hold->taken ? 0
			   : error_set(err, ERR_RUN_STATE,
				       "somebody is at work on the files of this run: try again "
				       "when that is done");
}

static void hold_leave(struct hold *hold)
{
	if (!hold->taken)
		return;
	pthread_mutex_lock(&hold->runs->lock);
	for (struct hold **at = &hold->runs->holds; *at; at = &(*at)->next) {
		if (*at == hold) {
			*at = hold->next;
			break;
		}
	}
	pthread_mutex_unlock(&hold->runs->lock);
}
#define _cleanup_hold_ _cleanup_(hold_leave)

/* ---- looking ---- */

static int find_run(struct runs *runs, const char *id, struct run *run, struct error *err)
{
	if (run_get(runs, id, run, err) < 0)
		return -1;
	if (!run->workspace || !runs->engine)
		return error_set(err, ERR_NOT_FOUND, "this run brought no workspace");
	if (!streq(run->node_id, runs->node->id))
		return error_set(err, ERR_RUN_STATE,
				 "the files of this run are on another node (%s): ask there",
				 run->node_id);
	return 0;
}

static int nothing_kept(const struct run *run, struct error *err)
{
	if (err->code != ERR_NOT_FOUND)
		return -1;
	return error_set(err, ERR_NOT_FOUND, "%s",
			 run_status_is_final(run->status)
				 ? "nothing of this run's workspace is kept any more"
				 : "the workspace of this run is not staged yet");
}

json_t *run_changes(struct runs *runs, const char *id, size_t limit, struct error *err)
{
	_cleanup_run_ struct run run = { 0 };
	json_t *report;

	if (find_run(runs, id, &run, err) < 0)
		return NULL;
	report = workspace_report(runs->engine, id, limit, err);
	if (!report)
		nothing_kept(&run, err);
	return report;
}

int run_diff(struct runs *runs, const char *id, int fd, struct error *err)
{
	return results_diff(&runs->engine->results, id, fd, err);
}

int run_has_diff(struct runs *runs, const char *id, struct error *err)
{
	_cleanup_run_ struct run run = { 0 };
	_cleanup_(workspace_state_clear) struct workspace_state state = { 0 };

	if (find_run(runs, id, &run, err) < 0)
		return -1;
	if (workspace_state_load(&runs->engine->results, id, &state, err) < 0)
		return nothing_kept(&run, err);
	if (state.phase < PHASE_FETCHED)
		return error_set(err, ERR_RUN_STATE,
				 "what this run changed is still in its place: it comes home when "
				 "the run has ended");
	return 0;
}

/* ---- collecting ---- */

static int activity_of(struct runs *runs, const struct actor *actor, const struct run *run,
		       const char *action, struct error *err)
{
	const struct activity activity = { .company_id = run->company_id,
					   .actor = actor,
					   .action = action,
					   .entity_type = "run",
					   .entity_id = run->id,
					   .agent_id = id_is_set(run->agent_id) ? run->agent_id
										: NULL };

	return activity_write(runs->db, runs->clock, &activity, err);
}

/* Its place was kept for this. */
static int fetch_late(struct files *files, struct lease *lease, struct place *place,
		      struct error *err)
{
	struct runs *runs = files->runs;

	if (files->state->phase >= PHASE_FETCHED)
		return 0;
	if (!id_is_set(files->run->lease_id) ||
	    lease_get(runs->leases, files->run->lease_id, lease, place, err) < 0 ||
	    lease->status != LEASE_ACTIVE)
		return error_set(
			err, ERR_LEASE_ENDED,
			"the place of this run is gone, and what it changed there with it");
	files->place = place;
	files->generation = lease->generation;
	return files_fetch(files, err);
}

/* What it was kept for is on this host now. */
static void let_place_go(struct runs *runs, const struct run *run)
{
	_cleanup_error_ struct error err = { 0 };
	const struct actor actor = run_actor(run);
	_cleanup_json_ json_t *report =
		lease_release_run(runs->leases, run->id, lease_status_for_run(run->status),
				  run->error, NULL, &actor, &err);

	if (!report)
		log_warn("run %s: its place is not released yet: %s", run->id, err.message);
}

static int bring_home_late(struct files *files, bool dry_run, struct error *err)
{
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };
	_cleanup_error_ struct error failure = { 0 };
	int64_t kept = files->run->place_kept_until;
	int outcome = fetch_late(files, &lease, &place, &failure);

	if (outcome == 0)
		outcome = files_apply(files, dry_run, &failure);
	if (files->state->phase >= PHASE_FETCHED)
		kept = 0;
	if (files_note(files, &failure, kept, EVENT_WORKSPACE_COLLECTED, err) < 0)
		return -1;
	if (kept == 0 && files->run->place_kept_until > 0)
		let_place_go(files->runs, files->run);
	if (outcome < 0)
		error_move(err, &failure);
	return outcome;
}

json_t *run_collect(struct runs *runs, const struct actor *actor, const char *id, bool dry_run,
		    size_t limit, struct error *err)
{
	_cleanup_run_ struct run run = { 0 };
	_cleanup_(workspace_state_clear) struct workspace_state state = { 0 };
	_cleanup_hold_ struct hold hold = { 0 };
	struct files files = {
		.runs = runs, .id = id, .run = &run, .state = &state, .cancel_fd = runs->stop_fd
	};

	if (find_run(runs, id, &run, err) < 0)
		return NULL;
	if (!run_status_is_final(run.status)) {
		error_set(err, ERR_RUN_STATE,
			  "the run is %s: its work is collected when it has ended",
			  run_status_name(run.status));
		return NULL;
	}
	if (hold_take(&hold, runs, id, err) < 0)
		return NULL;
	if (workspace_state_load(&runs->engine->results, id, &state, err) < 0) {
		nothing_kept(&run, err);
		return NULL;
	}
	if (bring_home_late(&files, dry_run, err) < 0 ||
	    (!dry_run && activity_of(runs, actor, &run, "run.collected", err) < 0))
		return NULL;
	return dry_run && state.phase != PHASE_APPLIED
		       ? json_incref(state.report)
		       : workspace_report(runs->engine, id, limit, err);
}

int run_drop_files(struct runs *runs, const struct actor *actor, const char *id, struct error *err)
{
	_cleanup_run_ struct run run = { 0 };
	_cleanup_hold_ struct hold hold = { 0 };

	if (find_run(runs, id, &run, err) < 0)
		return -1;
	if (!run_status_is_final(run.status))
		return error_set(err, ERR_RUN_STATE, "the run is %s: cancel it first",
				 run_status_name(run.status));
	if (hold_take(&hold, runs, id, err) < 0)
		return -1;
	if (workspace_drop(runs->engine, id, err) < 0)
		return nothing_kept(&run, err);
	if (run_set_dropped(runs->db, runs->clock, id, err) < 0)
		return -1;
	if (run.place_kept_until > 0)
		let_place_go(runs, &run);
	return activity_of(runs, actor, &run, "run.workspace_dropped", err);
}

/* ---- going on after a restart ---- */

/*
 * A run that has ended with its work on the way: its collecting was interrupted, or failed and may
 * succeed now. One that nobody wanted collected is left alone.
 */
static void go_on(struct runs *runs, const char *id)
{
	_cleanup_run_ struct run run = { 0 };
	_cleanup_(workspace_state_clear) struct workspace_state state = { 0 };
	_cleanup_hold_ struct hold hold = { 0 };
	_cleanup_error_ struct error err = { 0 };
	struct files files = {
		.runs = runs, .id = id, .run = &run, .state = &state, .cancel_fd = runs->rest_fd
	};

	if (find_run(runs, id, &run, &err) < 0 || !run_status_is_final(run.status) ||
	    hold_take(&hold, runs, id, &err) < 0 ||
	    workspace_state_load(&runs->engine->results, id, &state, &err) < 0 ||
	    state.phase < PHASE_STAGED || state.phase == PHASE_APPLIED)
		return;
	if (state.phase < PHASE_FETCHED && run.place_kept_until == 0)
		return;
	if (!state.collect && state.phase != PHASE_APPLYING && state.phase >= PHASE_FETCHED)
		return;
	if (bring_home_late(&files, false, &err) < 0)
		log_warn("run %s: its work is still not home: %s", id, err.message);
	else
		log_info("run %s: its work is home", id);
}

void runs_collect_rest(struct runs *runs)
{
	_cleanup_strv_ char **ids = NULL;
	_cleanup_error_ struct error err = { 0 };

	if (!runs->engine)
		return;
	if (results_list(&runs->engine->results, &ids, &err) < 0) {
		log_warn("results of runs could not be listed: %s", err.message);
		return;
	}
	for (char **id = ids; id && *id && runs_pause(runs, 0); id++)
		go_on(runs, *id);
}
