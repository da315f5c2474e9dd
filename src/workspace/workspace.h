/*
 * The files of a run: staged into its place, brought home afterwards. The engine keeps what it must
 * remember in files (results.h), not in the database, and everything it does can be done again
 * after a crash. Who calls it (run/) gives it the place and records what it reports.
 *
 *     prepare    which mode, where, may it: before a place is leased
 *     stage      the tree is in the place, or nothing runs there
 *     fetch      what the place changed is on this host: the place may go
 *     apply      it is in the workspace, nothing of anybody else's touched
 *
 * Modes (design section 9): auto is in_place for driver local, overlay for native places (copy
 * where another run has the tree, or the kernel cannot), copy elsewhere.
 */
#pragma once

#include "place/tree.h"
#include "workspace/apply.h"
#include "workspace/results.h"

struct workspace_engine {
	struct results results;
	struct clock *clock;
	char *cache_path; /* of hashes */
	char *data_path;
	/* What may be brought home of one run; 0: 1,000,000 and 16 GiB. */
	uint64_t max_fetch_entries, max_fetch_bytes;
};
int workspace_engine_open(struct workspace_engine *engine, const char *data_path,
			  struct clock *clock, struct error *err);
void workspace_engine_close(struct workspace_engine *engine);
/* Hash caches and memories of places that nobody used for a week go. Done at opening, and when
 * another place comes. */
void workspace_sweep(struct workspace_engine *engine);

struct workspace_request {
	const char *run_id;
	const char *path; /* absolute */
	enum workspace_mode mode;
	bool collect;
	bool careful;     /* what runs by itself is kept beside */
	json_t *show;     /* array of paths that are seen although they are hidden; NULL: none */
	bool allow_large; /* the guards below do not count */
	bool is_local;    /* the place that is to come is this host */
	bool mounts;      /* or can have a directory of it mounted */
	bool takes_relay; /* false: only none and, on local, in_place */
	bool shared;      /* another run has the same tree now */
};
/* Guards: refused unless allow_large. */
#define WORKSPACE_MAX_FILES 200000
#define WORKSPACE_MAX_BYTES (4ULL << 30)
/*
 * Chooses the mode and writes the state (phase prepared). ERR_UNPROCESSABLE with what to do for /,
 * a home directory, the data directory, a path that is no directory, a mode the place cannot have.
 */
int workspace_prepare(struct workspace_engine *engine, const struct workspace_request *wish,
		      struct workspace_state *state, struct error *err);

struct workspace_progress {
	const char *step;                                /* "scan", "stage", "fetch", "apply" */
	uint64_t files, files_total, bytes, bytes_total; /* totals 0 while unknown */
};
struct workspace_act {
	const struct place_ref *place;
	const char *place_root; /* where the workspace is to be in the place */
	const char *upper_path; /* mode overlay: where its upper layer is on this host */
	void (*progress)(void *arg, const struct workspace_progress *now);
	void *progress_arg;
	int cancel_fd;
};
/* Idempotent until it has succeeded; what an earlier, broken try left is put right. */
int workspace_stage(struct workspace_engine *engine, struct workspace_state *state,
		    const struct workspace_act *act, struct error *err);
/* What is remembered of the trees in a place goes: it was torn down. Absence is success. */
int workspace_forget_place(struct workspace_engine *engine, const char *place_id,
			   struct error *err);
/* No command may be running in the place. Idempotent. */
int workspace_fetch(struct workspace_engine *engine, struct workspace_state *state,
		    const struct workspace_act *act, struct error *err);
/* Files and, in a repository, commits. The report is on the state afterwards. */
int workspace_apply(struct workspace_engine *engine, struct workspace_state *state,
		    const struct apply_options *options, struct error *err);
/* {path, mode, phase, staged:{files, bytes, sent...}, changes:[{path, kind, fate, beside, reason}],
 * counts:{...}, git:{...}, truncated}: at most `limit` changes. */
json_t *workspace_report(struct workspace_engine *engine, const char *run_id, size_t limit,
			 struct error *err);
int workspace_drop(struct workspace_engine *engine, const char *run_id, struct error *err);
