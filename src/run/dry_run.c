/*
 * What a workspace would bring into a place: `berth run --dry-run`. It is prepared and looked at as
 * for a run that never comes, and nothing of it stays.
 */
#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "git/hidden.h"
#include "run/files.h"

#define SKIPPED_SHOWN 100
#define HIDDEN_SHOWN 1000

struct hiding {
	json_t *list; /* of {path, reason}, at most HIDDEN_SHOWN */
	int64_t count;
};

/* As git shows directories, with a slash. */
static void note_hidden(void *arg, const char *path, size_t len, bool is_dir, const char *name,
			const char *rules)
{
	struct hiding *hiding = arg;
	_cleanup_free_ char *reason = NULL, *shown = NULL;
	json_t *one;

	if (hiding->count++ >= HIDDEN_SHOWN)
		return;
	shown = xasprintf("%.*s%s", (int)len, path, is_dir ? "/" : "");
	reason = rules  ? xstrdup(rules)
		 : name ? xasprintf("its name: %s", name)
			: xstrdup("the directory it is in");
	one = json_object();
	json_put_str(one, "path", shown);
	json_put_str(one, "reason", reason);
	json_put_bool(one, "byName", name != NULL);
	json_array_append_new(hiding->list, one);
}

static json_t *plan_json(const struct workspace_state *state, const struct scan_report *found,
			 const struct hiding *hiding)
{
	json_t *plan = json_object();

	json_put_str(plan, "path", state->path);
	json_put_str(plan, "mode", workspace_mode_name(state->mode));
	json_put_bool(plan, "collect", state->collect);
	json_put_int(plan, "files", (int64_t)(found->files + found->symlinks));
	json_put_int(plan, "directories", (int64_t)found->dirs);
	json_put_int(plan, "bytes", (int64_t)found->bytes);
	json_put_int(plan, "skippedCount", (int64_t)found->skipped_count);
	while (json_array_size(found->skipped) > SKIPPED_SHOWN)
		json_array_remove(found->skipped, SKIPPED_SHOWN);
	if (found->skipped)
		json_put_ref(plan, "skipped", found->skipped);
	else
		json_put_new(plan, "skipped", json_array());
	json_put_int(plan, "hiddenCount", hiding->count);
	json_put_ref(plan, "hidden", hiding->list);
	return plan;
}

static json_t *look(struct runs *runs, const struct workspace_state *state, bool allow_large,
		    struct error *err)
{
	_cleanup_close_ int root = -1, results = -1;
	_cleanup_(hidden_free) struct hidden hidden = { 0 };
	_cleanup_json_ json_t *list = json_array();
	struct hiding hiding = { .list = list };
	struct scan_report found = { 0 };
	/* In the directory itself the command sees everything. */
	bool in_place = state->mode == MODE_IN_PLACE;
	const struct scan_options options = {
		.use_ignore = !in_place,
		.hidden = in_place ? NULL : &hidden,
		.on_hidden = note_hidden,
		.on_hidden_arg = &hiding,
		.skip_git = true,
		.max_entries = allow_large ? 0 : WORKSPACE_MAX_FILES,
		.max_bytes = allow_large ? 0 : WORKSPACE_MAX_BYTES,
		.cancel_fd = runs->stop_fd,
	};
	json_t *plan = NULL;

	if (dir_open(AT_FDCWD, state->path, &root, err) == 0 &&
	    results_dir(&runs->engine->results, state->run_id, true, &results, err) == 0 &&
	    (in_place ||
	     hidden_load(&hidden, root, state->path, state->show, runs->stop_fd, NULL, err) == 0) &&
	    workspace_scan(root, &options, results, "plan", &found, err) == 0)
		plan = plan_json(state, &found, &hiding);
	json_decref(found.skipped);
	return plan;
}

json_t *run_plan_files(struct runs *runs, const json_t *wish, const struct environment *environment,
		       struct error *err)
{
	_cleanup_(workspace_state_clear) struct workspace_state state = { 0 };
	char id[ID_SIZE];
	struct workspace_request wanted = {
		.run_id = id,
		.path = json_str(wish, "path"),
		.collect = !str_equal(json_str(wish, "collect"), "manual"),
		.show = json_array_at(wish, "show"),
		.allow_large = json_bool(wish, "allowLarge", false),
		.is_local = !environment || environment->driver == DRIVER_LOCAL,
		.mounts = environment &&
			  environment_traits(runs->makers, environment).mounts_workspace,
		.takes_relay = !environment || files_take_relay(environment),
	};
	json_t *plan = NULL;

	if (!wish) {
		error_set(err, ERR_VALIDATION, "mode none brings nothing");
		return NULL;
	}
	id_new(id);
	if (workspace_mode_parse(json_str(wish, "mode"), &wanted.mode) < 0) {
		error_set(err, ERR_VALIDATION, "there is no such mode");
		return NULL;
	}
	if (files_are_shared(runs, id, wanted.path, &wanted.shared, err) == 0 &&
	    workspace_prepare(runs->engine, &wanted, &state, err) == 0)
		plan = look(runs, &state, wanted.allow_large, err);
	workspace_drop(runs->engine, id, NULL);
	return plan;
}
