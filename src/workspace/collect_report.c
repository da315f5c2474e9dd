#include "workspace/collect_internal.h"

#include <fcntl.h>
#include <string.h>
#include "base/fd.h"
#include "base/text.h"
#include "workspace/apply_internal.h"

#define FORETOLD_MAX 1000
/* Of those that are listed apart. */
#define APART_MAX 100

struct telling {
	json_t *changes;
	size_t limit;
	bool truncated;
	size_t crowded; /* so many at the end of a full list have a reason */
	struct apply_report counts;
	uint64_t pending;
	json_t *runs, *held; /* at most APART_MAX each */
};

/* Bytes that are no UTF-8 can be shown, but not named by a client: then they are there in base64
 * too. */
static void put_path(json_t *object, const char *key, const char *path)
{
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_free_ char *coded_key = NULL;

	json_put_str(object, key, path);
	if (!path || utf8_valid(path, strlen(path)))
		return;
	coded_key = xasprintf("%sBase64", key);
	base64_encode(&text, path, strlen(path));
	json_put_str(object, coded_key, buf_str(&text));
}

/* In a full list one that has a `reason` takes the place of the last that has none. */
static bool has_room(struct telling *t, const char *reason)
{
	if (json_array_size(t->changes) < t->limit)
		return true;
	t->truncated = true;
	if (!reason)
		return false;
	while (t->crowded < t->limit &&
	       json_str(json_array_get(t->changes, t->limit - 1 - t->crowded), "reason"))
		t->crowded++;
	return t->crowded < t->limit &&
	       json_array_remove(t->changes, t->limit - 1 - t->crowded) == 0;
}

static const char *type_name(enum tree_type type)
{
	switch (type) {
	case TREE_DIR:
		return "directory";
	case TREE_FILE:
		return "file";
	case TREE_SYMLINK:
		return "symlink";
	case TREE_NONE:
	case TREE_SPECIAL:
		break;
	}
	return NULL;
}

/* Whoever reads no list of a thousand files reads these. */
static void tell_apart(json_t *list, const struct change *change)
{
	json_t *item;

	if (json_array_size(list) >= APART_MAX)
		return;
	item = json_object();
	put_path(item, "path", change->entry.path);
	json_put_str(item, "fate", change_fate_name(change->fate));
	put_path(item, "beside", change->beside);
	json_put_str(item, "reason", change->reason);
	if (change->runs)
		json_put_str(item, "runBy", change->runs);
	json_array_append_new(list, item);
}

static int tell(void *arg, const struct change *change, struct error *err)
{
	struct telling *t = arg;
	json_t *item;

	(void)err;
	apply_count(&t->counts, change);
	if (change->runs && change->fate != FATE_SAME)
		tell_apart(t->runs, change);
	if (change->fate == FATE_HELD)
		tell_apart(t->held, change);
	if (change->fate == FATE_PENDING && change_is_of_directory(change))
		t->counts.directories++;
	else
		t->pending += change->fate == FATE_PENDING;
	if (!has_room(t, change->reason))
		return 0;
	item = json_object();
	put_path(item, "path", change->entry.path);
	json_put_str(item, "kind", change_kind_name(change->kind));
	json_put_str(item, "fate", change_fate_name(change->fate));
	json_put_str(item, "type", type_name(change->entry.type));
	if (change->entry.type == TREE_FILE)
		json_put_int(item, "size", (int64_t)change->entry.size);
	put_path(item, "beside", change->beside);
	json_put_str(item, "reason", change->reason);
	if (change->runs)
		json_put_str(item, "runBy", change->runs);
	json_array_append_new(t->changes, item);
	return 0;
}

static json_t *fetched_of(const struct workspace_state *state)
{
	return json_object_at(state->report, "fetched");
}

/* What stayed in the place is part of the story. */
static void tell_refused(struct telling *t, const struct workspace_state *state)
{
	json_t *refused = json_array_at(fetched_of(state), "refused"), *one;
	size_t i;

	json_array_foreach (refused, i, one) {
		json_t *item;

		if (!has_room(t, json_str(one, "reason")))
			return;
		item = json_object();
		json_put_str(item, "path", json_str(one, "path"));
		json_put_str(item, "kind", change_kind_name(CHANGE_MODIFIED));
		json_put_str(item, "fate", change_fate_name(FATE_REFUSED));
		json_put_str(item, "type", NULL);
		json_put_str(item, "beside", NULL);
		json_put_str(item, "reason", json_str(one, "reason"));
		json_array_append_new(t->changes, item);
	}
}

void report_counts(const struct apply_report *report, const struct workspace_state *state,
		   json_t *counts)
{
	json_put_int(counts, "added", (int64_t)report->added);
	json_put_int(counts, "modified", (int64_t)report->modified);
	json_put_int(counts, "deleted", (int64_t)report->deleted);
	json_put_int(counts, "directories", (int64_t)report->directories);
	json_put_int(counts, "same", (int64_t)report->same);
	json_put_int(counts, "conflicts", (int64_t)report->conflicts);
	json_put_int(counts, "keptHost", (int64_t)report->kept_host);
	json_put_int(counts, "held", (int64_t)report->held);
	json_put_int(counts, "runsByItself", (int64_t)report->runs);
	json_put_int(counts, "refused",
		     (int64_t)report->refused + json_int(fetched_of(state), "refusedCount", 0));
	json_put_int(counts, "bytes", (int64_t)report->bytes);
}

static json_t *report_new(const struct workspace_state *state, struct telling *t)
{
	json_t *report = json_object(), *counts = json_object(), *fetched = fetched_of(state);

	tell_refused(t, state);
	put_path(report, "path", state->path);
	json_put_str(report, "runId", state->run_id);
	json_put_str(report, "mode", workspace_mode_name(state->mode));
	json_put_str(report, "phase", workspace_phase_name(state->phase));
	put_path(report, "worktree", state->worktree);
	json_put_ref(report, "staged", json_object_get(state->report, "staged"));
	if (fetched) {
		json_t *shown = json_object();

		json_put_int(shown, "files", json_int(fetched, "files", 0));
		json_put_int(shown, "bytes", json_int(fetched, "bytes", 0));
		json_put_int(shown, "refused", json_int(fetched, "refusedCount", 0));
		json_put_new(report, "fetched", shown);
	}
	report_counts(&t->counts, state, counts);
	json_put_int(counts, "pending", (int64_t)t->pending);
	json_put_new(report, "counts", counts);
	json_put_ref(report, "git", json_object_get(state->report, "git"));
	json_put_ref(report, "held", t->held);
	json_put_ref(report, "runsByItself", t->runs);
	json_put_ref(report, "changes", t->changes);
	json_put_bool(report, "truncated", t->truncated);
	return report;
}

static bool has_changes(const struct results *results, const char *run_id)
{
	_cleanup_close_ int fd = -1;

	return results_dir(results, run_id, false, &fd, NULL) == 0 &&
	       faccessat(fd, RESULTS_CHANGES, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

json_t *workspace_report(struct workspace_engine *engine, const char *run_id, size_t limit,
			 struct error *err)
{
	_cleanup_(workspace_state_clear) struct workspace_state state = { 0 };
	_cleanup_json_ json_t *changes = json_array(), *runs = json_array(), *held = json_array();
	struct telling t = { .changes = changes, .limit = limit, .runs = runs, .held = held };

	if (workspace_state_load(&engine->results, run_id, &state, err) < 0)
		return NULL;
	if (state.phase >= PHASE_FETCHED && has_changes(&engine->results, run_id) &&
	    results_changes(&engine->results, run_id, tell, &t, err) < 0)
		return NULL;
	return report_new(&state, &t);
}

json_t *report_foretold(struct workspace_engine *engine, struct workspace_state *state,
			const struct apply_options *options, struct error *err)
{
	_cleanup_json_ json_t *changes = json_array(), *runs = json_array(), *held = json_array();
	struct telling t = {
		.changes = changes, .limit = FORETOLD_MAX, .runs = runs, .held = held
	};
	struct apply_report unused;

	if (has_changes(&engine->results, state->run_id) &&
	    results_apply(&engine->results, state, options, tell, &t, &unused, err) < 0)
		return NULL;
	return report_new(state, &t);
}
