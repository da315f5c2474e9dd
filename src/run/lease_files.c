/*
 * Files of a lease that no run has: an operator stages a directory into the place and collects it
 * again. The results have the lease's id where those of a run have the run's.
 */
#include "base/text.h"
#include "run/files.h"

/* Work that is in the place or on its way home must not be lost to a second staging. */
static int check_earlier(struct runs *runs, const char *id, bool discard, struct error *err)
{
	_cleanup_(workspace_state_clear) struct workspace_state state = { 0 };
	_cleanup_error_ struct error none = { 0 };

	if (discard || workspace_state_load(&runs->engine->results, id, &state, &none) < 0)
		return 0;
	if (state.phase < PHASE_STAGED || state.phase == PHASE_APPLIED)
		return 0;
	return error_set(
		err, ERR_CONFLICT,
		"what was staged into this place before has not been collected: collect it, "
		"or say `discard`");
}

static int check_mode(const json_t *wish, struct error *err)
{
	enum workspace_mode mode = MODE_AUTO;

	workspace_mode_parse(json_str(wish, "mode"), &mode);
	if (mode == MODE_AUTO || mode == MODE_COPY)
		return 0;
	return error_set(err, ERR_UNPROCESSABLE,
			 "a place that is leased already can only be given a copy (mode copy), not "
			 "mode %s",
			 workspace_mode_name(mode));
}

json_t *lease_stage_files(struct runs *runs, const struct lease *lease, const struct place *place,
			  const json_t *wish, bool discard, struct error *err)
{
	_cleanup_(workspace_state_clear) struct workspace_state state = { 0 };
	_cleanup_free_ char *root = NULL, *shown = NULL;
	struct files files = { .runs = runs,
			       .id = lease->id,
			       .state = &state,
			       .place = place,
			       .generation = lease->generation,
			       .cancel_fd = runs->stop_fd };
	const struct traits traits = makers_traits(runs->makers, place->driver, place->provider);
	const struct workspace_request wanted = {
		.run_id = lease->id,
		.path = json_str(wish, "path"),
		.mode = MODE_COPY,
		.careful = json_bool(wish, "careful", false),
		.show = json_array_at(wish, "show"),
		.allow_large = json_bool(wish, "allowLarge", false),
		.is_local = traits.is_host,
		.mounts = traits.mounts_workspace,
		.takes_relay = !json_is_true(json_object_get(place->metadata, PLACE_NO_RELAY)),
	};

	if (check_mode(wish, err) < 0 || check_earlier(runs, lease->id, discard, err) < 0 ||
	    files_prepare(runs, &wanted, &state, err) < 0)
		return NULL;
	files_root(&files, lease->metadata, json_str(wish, "root"), &root, &shown);
	files.place_root = root;
	if (files_stage(&files, err) < 0)
		return NULL;
	return workspace_report(runs->engine, lease->id, 0, err);
}

json_t *lease_collect_files(struct runs *runs, const struct lease *lease, const struct place *place,
			    bool dry_run, size_t limit, struct error *err)
{
	_cleanup_(workspace_state_clear) struct workspace_state state = { 0 };
	struct files files = { .runs = runs,
			       .id = lease->id,
			       .state = &state,
			       .place = place,
			       .generation = lease->generation,
			       .cancel_fd = runs->stop_fd };

	if (workspace_state_load(&runs->engine->results, lease->id, &state, err) < 0) {
		if (err->code == ERR_NOT_FOUND)
			error_set(err, ERR_RUN_STATE, "nothing was staged into this place");
		return NULL;
	}
	if (files_fetch(&files, err) < 0 || files_apply(&files, dry_run, err) < 0)
		return NULL;
	return dry_run && state.phase != PHASE_APPLIED
		       ? json_incref(state.report)
		       : workspace_report(runs->engine, lease->id, limit, err);
}
