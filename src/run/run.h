/*
 * Runs: one execution of a command, the unit people look at. A run is a row first and a thread
 * second: POST writes the row as `queued`; the service takes queued rows of this node in order,
 * each on a thread of its own that walks through orchestrator.c. Whatever happens there, the leases
 * of the run are released and the row ends in a final status with an error code that says why.
 */
#pragma once

#include "auth/run_token.h"
#include "db/column.h"
#include "lease/lease.h"
#include "record/quota.h"
#include "runlog/runlog.h"

/* Whether env and stdin, which may be secrets, are still with the run. Kept as these numbers. */
enum run_secrets { SECRETS_NONE, SECRETS_KEPT, SECRETS_DELETED };

struct run {
	char id[ID_SIZE], company_id[ID_SIZE], agent_id[ID_SIZE], project_id[ID_SIZE];
	char issue_id[ID_SIZE], workspace_id[ID_SIZE], environment_id[ID_SIZE], lease_id[ID_SIZE];
	char retry_of_run_id[ID_SIZE], node_id[ID_SIZE];
	enum run_status status;
	char *status_reason; /* why it waits, in words */
	char **command;
	char *cwd;
	json_t *env;                       /* object of strings; of null when secrets are deleted */
	char *stdin_text, *stdin_encoding; /* see run_stdin; encoding NULL or base64 */
	int64_t timeout_ms;                /* 0: none */
	int64_t exit_code;                 /* -1: none */
	char *invocation_source;
	char *signal, *reason, *error, *error_code;
	int64_t process_pid, log_bytes, process_loss_retry_count;
	json_t *context, *timings, *result; /* result may be NULL */
	/* What was asked for, {path, mode, collect, root, allowLarge}, and what became of it,
	 * {mode, phase, placeRoot, staged, counts, error}. NULL: none. */
	json_t *workspace, *workspace_report;
	int64_t place_kept_until; /* what it changed is still in its place; 0: nothing is */
	int64_t boot_epoch;
	int64_t secrets; /* enum run_secrets */
	int64_t cancel_requested_at, created_at, started_at, finished_at, updated_at;
};
void run_clear(struct run *run);
#define _cleanup_run_ _cleanup_(run_clear)
extern const struct column RUN_COLUMNS[]; /* the keys of its JSON, and its row */
/* Values of env and stdin are never shown; envKeys lists the names. */
json_t *run_json(const struct run *run);
/* The bytes of its standard input, appended; none is success. */
int run_stdin(const struct run *run, struct buf *out, struct error *err);

struct runs;
struct workspace_engine;
struct runs_options {
	struct db *db;
	struct clock *clock;
	const struct node *node;
	struct leases *leases;
	const struct makers *makers;
	struct places *places;
	struct runlog_store *logs;
	struct quota quota;    /* of each company */
	int max_parallel;      /* threads; 0: 256. Further runs stay queued with a reason */
	const char *api_url;   /* for BERTH_API_URL; NULL: none yet */
	const char *home_path; /* <data>/home: working directories of agents without one */
	const struct run_token_key *token_key; /* signs the tokens of runs; NULL: they get none */
	/* Where runs go that choose nothing: see run/default.h. Borrowed. */
	const char *default_environment;
	const json_t *sandbox;
	struct workspace_engine *engine; /* of workspaces; NULL: runs that bring one are refused */
	const struct allow *allow;       /* for callers with a token; borrowed; NULL: nothing */
};
int runs_new(const struct runs_options *options, struct runs **runs, struct error *err);
/* Recovery at start (spec 01 E.7): runs of this node's earlier boots, and of dead nodes. */
int runs_recover(struct runs *runs, struct error *err);
int runs_start(struct runs *runs, struct error *err);
/*
 * Stops taking runs; with drain waits for those going until the deadline. What is still going then
 * is left to its relay, and to the next server.
 */
void runs_stop(struct runs *runs, bool drain, int64_t wait_ms);
void runs_free(struct runs *runs);
size_t runs_active(struct runs *runs);

extern const struct field RUN_FIELDS[]; /* body of POST /api/companies/:cid/runs */
/*
 * `body` has passed RUN_FIELDS: `environment` and `workspaceIfSandbox` become environmentId, with
 * or without the workspace. To be called before anything judges what the body names.
 */
int run_resolve_names(struct runs *runs, const char *company_id, json_t *body, struct error *err);
/* `body` has passed both. References must exist in the company: ERR_UNPROCESSABLE names
 * which. */
int run_create(struct runs *runs, const struct actor *actor, const char *run_id,
	       const char *company_id, const json_t *body, struct run *run, struct error *err);
int run_get(struct runs *runs, const char *id, struct run *run, struct error *err);
struct run_query {
	const char *company_id;
	const char *status, *agent_id, *issue_id, *project_id, *environment_id; /* NULL: any */
	int64_t limit;
	const char *cursor; /* nextCursor of the page before, or NULL */
};
/* {items, nextCursor}, newest first. */
json_t *run_list(struct runs *runs, const struct run_query *query, struct error *err);
/* A run that has ended is returned as it is. One that is still leaving is killed by a second call.
 */
int run_cancel(struct runs *runs, const struct actor *actor, const char *id, struct run *run,
	       struct error *err);
/* A new run with the same request; the old must have ended (ERR_RUN_STATE). */
int run_retry(struct runs *runs, const struct actor *actor, const char *id, struct run *run,
	      struct error *err);
/* How far the files of a run are that are on their way; step NULL: none are. */
struct run_progress {
	const char *step;                               /* "scan", "stage", "fetch", "apply" */
	int64_t files, files_total, bytes, bytes_total; /* totals 0 while unknown */
};
void run_progress(struct runs *runs, const char *id, struct run_progress *out);
json_t *run_progress_json(const struct run_progress *progress); /* WorkspaceProgress */
/* An eventfd that becomes readable when the run changes; for followers. Give it back to
 * run_unwatch. */
int run_watch(struct runs *runs, const char *id, struct error *err);
void run_unwatch(struct runs *runs, const char *id, int fd);
/*
 * What a run changed (workspace/workspace.h has the shape), at most `limit` of it. ERR_NOT_FOUND
 * when it brought no workspace or nothing is kept any more; ERR_RUN_STATE when another node has it.
 */
json_t *run_changes(struct runs *runs, const char *id, size_t limit, struct error *err);
/* The same as a unified diff into fd; run_has_diff says beforehand whether there is one. */
int run_has_diff(struct runs *runs, const char *id, struct error *err);
int run_diff(struct runs *runs, const char *id, int fd, struct error *err);
/* Puts it into the workspace, or says what that would do. An ended run's only (ERR_RUN_STATE). */
json_t *run_collect(struct runs *runs, const struct actor *actor, const char *id, bool dry_run,
		    size_t limit, struct error *err);
int run_drop_files(struct runs *runs, const struct actor *actor, const char *id, struct error *err);
/*
 * What a wish (as workspace_wanted made it) would bring into a place of that environment (NULL: on
 * this host): {path, mode, collect, files, directories, bytes, skipped, skippedCount}.
 */
json_t *run_plan_files(struct runs *runs, const json_t *wish, const struct environment *environment,
		       struct error *err);
/*
 * The same for a lease that no run has: a wish as workspace_wanted made it goes into its place,
 * always as a copy. `discard`: what was changed there since it was staged before may be lost.
 */
json_t *lease_stage_files(struct runs *runs, const struct lease *lease, const struct place *place,
			  const json_t *wish, bool discard, struct error *err);
json_t *lease_collect_files(struct runs *runs, const struct lease *lease, const struct place *place,
			    bool dry_run, size_t limit, struct error *err);
/* Drops results that have been kept long enough; returns how many went, or would go. */
int64_t runs_prune_files(struct runs *runs, bool dry_run, struct error *err);
/* Adds results that no run and no lease explains to an audit. */
int runs_audit_files(struct runs *runs, json_t *list, struct error *err);
/* Compresses the logs of this node's runs that ended before the time and were not yet.
 * ERR_CANCELLED once *stop is set. */
int runs_pack_logs(struct runs *runs, int64_t before_ms, const atomic_bool *stop,
		   struct error *err);
/*
 * Deletes values of env and stdin of runs that have ended: at once of those that are not retried
 * (succeeded, cancelled), of the others when they ended before the time. Names of env stay.
 */
int runs_delete_secrets(struct runs *runs, int64_t before_ms, struct error *err);
/*
 * Removes finished runs and their logs older than the time, but for those whose results are still
 * kept; returns how many went, or would go.
 */
int64_t runs_prune(struct runs *runs, int64_t before_ms, bool dry_run, struct error *err);
/* Whether a lease that ended then has results of its own that are still kept. `runs` for a
 * leases_prune. */
bool runs_hold_lease(void *runs, const char *lease_id, int64_t released_at);
