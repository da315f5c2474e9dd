/*
 * The life of a run, from left to right (architecture page): resolve, prepare, acquire, realize,
 * stage, provision, execute, collect, end, release. Each step completes and is recorded, or fails
 * with one of the codes of spec 01 E.1 and everything before it is undone or queued for cleanup.
 */
#pragma once

#include "run/run.h"

struct run_step_times {
	/* durations */
	int64_t acquired_ms, realized_ms, staged_ms, provisioned_ms, executed_ms, collected_ms,
		total_ms;
};

/* Everything one walk needs; assembled by the runs service, by hand in tests. */
struct orchestration {
	struct runs *runs;
	struct db *db;
	struct clock *clock;
	struct leases *leases;
	const struct makers *makers;
	struct places *places;
	struct runlog_store *logs;
	const char *api_url, *home_path;
	const struct run_token_key *token_key; /* NULL: runs get no tokens */
	int cancel_fd;                         /* latch: the run was asked to stop */
};
/* Walks one claimed run to its end. Never fails: every outcome is on the row. */
void orchestrate(struct orchestration *o, struct run *run);
/* From the command on, for a run that an earlier server began; takes over exec and log. */
void orchestrate_adopted(struct orchestration *o, struct run *run, struct exec *exec,
			 struct runlog *log);

/* An error of reading what is remembered of a run's files that will not be another the next time.
 */
bool run_files_are_unknown(const struct error *why);

/* How a command of this adapter reaches a place of this driver (spec 01 E.6); fails closed (I7). */
struct execution_target {
	bool remote;
	const char *transport; /* "sandbox", "ssh" or NULL */
	char *remote_cwd;
	const char *shell;  /* "bash", "sh" or NULL */
	int64_t timeout_ms; /* from the config; 0: none */
};
int execution_target(const char *adapter_type, const struct environment *environment,
		     const json_t *lease_metadata, struct execution_target *out, struct error *err);
void execution_target_clear(struct execution_target *target);
/* Its form on the wire: {kind: local|remote, transport, ...}; never an address to call back to. */
json_t *execution_target_json(const struct execution_target *target,
			      const struct environment *environment, const char *lease_id);
