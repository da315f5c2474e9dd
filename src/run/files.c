#include "run/files.h"

#include <string.h>

#include "base/text.h"
#include "run/workspace_request.h"

#define TELL_EVERY_MS 500
#define TELL_FILES 1000
#define QUIET_MS 20000
#define PLACE_DIRECTORY "/workspace"

SQL(RUNS_WITH_FILES, "SELECT workspace FROM runs"
		     " WHERE status IN ('queued', 'running', 'scheduled_retry')"
		     " AND node_id = $1 AND workspace IS NOT NULL AND id <> CAST($2 AS TEXT)"
		     " LIMIT 10000");
SQL(RUN_SET_FILES, "UPDATE runs SET workspace_report = $2, place_kept_until = $3, updated_at = $4"
		   " WHERE id = $1");

/* ---- telling ---- */

struct teller {
	const struct files *files;
	int64_t next; /* when the next event may be written */
	bool told;    /* one was */
};

struct telling {
	const struct files_report *report;
	int64_t kept_until, now;
};

int files_event_tx(struct tx *tx, int64_t now, const struct files_report *report, struct error *err)
{
	const struct event event = { .company_id = report->run->company_id,
				     .type = report->type,
				     .run_id = report->run->id,
				     .payload = report->payload };

	return event_write_tx(tx, now, &event, err);
}

static int tell(struct tx *tx, void *arg, struct error *err)
{
	const struct telling *t = arg;
	const struct files_report *r = t->report;

	if (r->text &&
	    tx_exec(tx, &RUN_SET_FILES, err, B_TEXT(r->run->id), B_TEXT(r->text),
		    t->kept_until > 0 ? B_INT(t->kept_until) : B_NULL, B_INT(t->now)) < 0)
		return -1;
	return files_event_tx(tx, t->now, r, err);
}

static json_t *progress_json(const struct workspace_progress *now)
{
	json_t *json = json_object();

	json_put_str(json, "step", now->step);
	json_put_int(json, "files", (int64_t)now->files);
	json_put_int(json, "filesTotal", (int64_t)now->files_total);
	json_put_int(json, "bytes", (int64_t)now->bytes);
	json_put_int(json, "bytesTotal", (int64_t)now->bytes_total);
	return json;
}

/* Followers see every change; the events, which are kept, a few in a second. */
static void note_progress(void *arg, const struct workspace_progress *now)
{
	struct teller *teller = arg;
	const struct files *f = teller->files;
	int64_t mono = clock_mono(f->runs->clock);
	_cleanup_json_ json_t *payload = NULL;
	struct files_report report = { .run = f->run, .type = EVENT_WORKSPACE_PROGRESS };
	struct telling telling = { .report = &report };

	if (!f->run)
		return;
	runs_set_progress(f->runs, f->run->id, now);
	/* What will be over in a moment is not worth an event; many files will not be. */
	if (mono < teller->next && (teller->told || now->files < TELL_FILES))
		return;
	teller->next = mono + TELL_EVERY_MS;
	teller->told = true;
	payload = progress_json(now);
	json_put_str(payload, "runId", f->run->id);
	report.payload = payload;
	telling.now = clock_now(f->runs->clock);
	DB_WRITE(f->runs->db, "run.progress", tell, &telling, NULL);
}

json_t *files_summary(struct runs *runs, const struct workspace_state *state,
		      const struct error *failure)
{
	static const char *const KEPT[] = { "staged",       "counts", "held",
					    "runsByItself", "git",    "worktree" };
	_cleanup_json_ json_t *report = workspace_report(runs->engine, state->run_id, 0, NULL);
	json_t *summary = json_object(), *error = NULL;

	json_put_str(summary, "mode", workspace_mode_name(state->mode));
	json_put_str(summary, "phase", workspace_phase_name(state->phase));
	json_put_str(summary, "placeRoot", state->place_root);
	for (size_t i = 0; i < ARRAY_SIZE(KEPT); i++) {
		if (json_object_get(report, KEPT[i]))
			json_put_ref(summary, KEPT[i], json_object_get(report, KEPT[i]));
	}
	if (failure && failure->code != ERR_NONE) {
		error = json_object();
		json_put_str(error, "code", error_code_name(failure->code));
		json_put_str(error, "message", failure->message);
	}
	json_put_new(summary, "error", error);
	return summary;
}

void files_report_clear(struct files_report *report)
{
	free(report->text);
	json_decref(report->payload);
	*report = (struct files_report){ 0 };
}

void files_report_make(const struct files *f, const struct error *failure, int64_t kept_until,
		       enum event_type type, struct files_report *out)
{
	_cleanup_json_ json_t *summary = files_summary(f->runs, f->state, failure);

	*out = (struct files_report){ .run = f->run,
				      .type = type,
				      .text = json_text(summary),
				      .payload = json_copy(summary) };
	json_put_str(out->payload, "runId", f->run->id);
	json_put_str(out->payload, "path", f->state->path);
	json_put_time(out->payload, "placeKeptUntil", kept_until);
}

int files_note(const struct files *f, const struct error *failure, int64_t kept_until,
	       enum event_type type, struct error *err)
{
	_cleanup_(files_report_clear) struct files_report report = { 0 };
	struct telling telling = { .report = &report,
				   .kept_until = kept_until,
				   .now = clock_now(f->runs->clock) };

	files_report_make(f, failure, kept_until, type, &report);
	if (DB_WRITE(f->runs->db, "run.files", tell, &telling, err) < 0)
		return -1;
	runs_notify(f->runs, f->run->id);
	return 0;
}

/* ---- the engine's verbs ---- */

static int act(const struct files *f,
	       int (*verb)(struct workspace_engine *, struct workspace_state *,
			   const struct workspace_act *, struct error *),
	       struct error *err)
{
	const struct place_ref ref = { f->runs->places, f->place->id, f->generation };
	struct teller teller = { .files = f, .next = clock_mono(f->runs->clock) + TELL_EVERY_MS };
	_cleanup_free_ char *upper = NULL;
	struct workspace_act how = {
		.place = &ref,
		.place_root = f->place_root ? f->place_root : f->state->place_root,
		.progress = note_progress,
		.progress_arg = &teller,
		.cancel_fd = f->cancel_fd,
	};

	if (f->state->mode == MODE_OVERLAY &&
	    places_workspace_upper(f->runs->places, f->place->id, f->generation, &upper, err) < 0)
		return -1;
	how.upper_path = upper;
	return verb(f->runs->engine, f->state, &how, err);
}

int files_prepare(struct runs *runs, const struct workspace_request *wish,
		  struct workspace_state *state, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };

	if (workspace_drop(runs->engine, wish->run_id, &why) < 0 && why.code != ERR_NOT_FOUND) {
		error_move(err, &why);
		return -1;
	}
	return workspace_prepare(runs->engine, wish, state, err);
}

int files_stage(const struct files *f, struct error *err)
{
	return act(f, workspace_stage, err);
}

int files_fetch(const struct files *f, struct error *err)
{
	if (f->state->phase >= PHASE_FETCHED)
		return 0;
	if (places_end_execs(f->runs->places, f->place->id, EXEC_CANCELLED, QUIET_MS, err) < 0)
		return error_wrap(err, "commands are still going in the place");
	return act(f, workspace_fetch, err);
}

static void note_applied(void *arg, const struct scan_progress *now)
{
	const struct workspace_progress progress = { .step = "apply",
						     .files = now->files,
						     .bytes = now->bytes };

	note_progress(arg, &progress);
}

int files_apply(const struct files *f, bool dry_run, struct error *err)
{
	struct teller teller = { .files = f, .next = clock_mono(f->runs->clock) + TELL_EVERY_MS };
	const struct apply_options options = { .dry_run = dry_run,
					       .cancel_fd = f->cancel_fd,
					       .progress = note_applied,
					       .progress_arg = &teller };

	/* A server that died after the last step and before the row said so. */
	if (f->state->phase == PHASE_APPLIED)
		return 0;
	return workspace_apply(f->runs->engine, f->state, &options, err);
}

/* ---- who else has the tree, and how a place gets it ---- */

struct sharing {
	struct runs *runs;
	const char *run_id, *path;
	bool shared;
};

static int look_for_others(struct tx *tx, void *arg, struct error *err)
{
	struct sharing *s = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	int more;

	s->shared = false;
	if (tx_query(tx, &c, &RUNS_WITH_FILES, err, B_TEXT(s->runs->node->id), B_TEXT(s->run_id)) <
	    0)
		return -1;
	while ((more = cursor_next(&c, err)) > 0) {
		const char *text = col_text(&c, 0);
		_cleanup_json_ json_t *wish = json_parse(text, strlen(text), NULL);
		const char *path = json_str(wish, "path");

		s->shared |= path && paths_overlap(path, s->path);
	}
	return more;
}

int files_are_shared(struct runs *runs, const char *run_id, const char *path, bool *shared,
		     struct error *err)
{
	struct sharing s = { .runs = runs, .run_id = run_id, .path = path };

	if (db_read(runs->db, look_for_others, &s, err) < 0)
		return -1;
	*shared = s.shared;
	return 0;
}

bool files_take_relay(const struct environment *environment)
{
	return !json_is_false(json_object_get(environment->config, "relay"));
}

bool files_mount(const struct makers *makers, const struct workspace_state *state,
		 const struct environment *environment, const char *masks,
		 struct workspace_mount *mount)
{
	if (!environment_traits(makers, environment).mounts_workspace ||
	    (state->mode != MODE_OVERLAY && state->mode != MODE_IN_PLACE))
		return false;
	*mount = (struct workspace_mount){
		.path = state->worktree ? state->worktree : state->path,
		.how = state->mode == MODE_OVERLAY ? WORKSPACE_OVERLAY : WORKSPACE_BIND,
		.masks = masks,
	};
	return true;
}

void files_root(const struct files *f, const json_t *metadata, const char *asked, char **root,
		char **shown)
{
	const struct workspace_state *s = f->state;
	const char *directory = json_str_nonblank(metadata, "remoteCwd");
	const struct traits traits =
		makers_traits(f->runs->makers, f->place->driver, f->place->provider);
	bool local = traits.is_host;

	if (local && s->mode == MODE_COPY && !asked)
		*root = xasprintf("%s/runs/%s", f->runs->home_path, f->id);
	else if (local && s->mode != MODE_COPY)
		*root = xstrdup(s->worktree ? s->worktree : s->path);
	else
		*root = xstrdup(asked                                  ? asked
				: !traits.below_directory && directory ? directory
								       : PLACE_DIRECTORY);
	*shown = local || !traits.below_directory || !directory
			 ? xstrdup(*root)
			 : xasprintf("%s%s", directory, *root);
}
