/*
 * The files of a run, between the engine (workspace/workspace.h), which does the work and remembers
 * it on disk, and the run's row, which shows what became of it. Used by the steps of a run, by
 * recovery and by the routes that come back to a run later.
 */
#pragma once

#include "record/event.h"
#include "run/service.h"
#include "workspace/workspace.h"

/* How long a place is kept whose files could not be fetched. */
#define PLACE_KEPT_MS ((int64_t)24 * 3600 * 1000)

/* A run's or a lease's files in a place. */
struct files {
	struct runs *runs;
	const char *id;        /* of the run, or of the lease that was staged without one */
	const struct run *run; /* NULL: a lease */
	struct workspace_state *state;
	const struct place *place;
	int64_t generation;
	const char *place_root;
	int cancel_fd;
};

/*
 * workspace_prepare for a place that is still to come: what an earlier try had staged is in another
 * one, and is forgotten with all that is kept of it.
 */
int files_prepare(struct runs *runs, const struct workspace_request *wish,
		  struct workspace_state *state, struct error *err);
/* Brings them in. */
int files_stage(const struct files *files, struct error *err);
/*
 * Ends every command that is going in the place, then brings home what was changed. Nothing is
 * touched on this host but the results.
 */
int files_fetch(const struct files *files, struct error *err);
/* Merges what was fetched into the workspace. */
int files_apply(const struct files *files, bool dry_run, struct error *err);

/* What the engine remembers, as the row and its event show it. */
struct files_report {
	const struct run *run;
	enum event_type type;
	char *text; /* NULL: there is none */
	json_t *payload;
};
void files_report_make(const struct files *files, const struct error *failure, int64_t kept_until,
		       enum event_type type, struct files_report *out);
void files_report_clear(struct files_report *report);
/* The event alone; whoever calls writes `text` to the row in the same transaction. */
int files_event_tx(struct tx *tx, int64_t now, const struct files_report *report,
		   struct error *err);
/*
 * Puts on the row what the engine remembers, with what went wrong (NULL: nothing did), and until
 * when the place is kept for it (0: it is not). `type` is the event that tells of it.
 */
int files_note(const struct files *files, const struct error *failure, int64_t kept_until,
	       enum event_type type, struct error *err);
/* {mode, phase, placeRoot, staged, counts, git, worktree, error} as it stands on the row. */
json_t *files_summary(struct runs *runs, const struct workspace_state *state,
		      const struct error *failure);

/* Whether another run that is on its way has the same tree, or one that overlaps. */
int files_are_shared(struct runs *runs, const char *run_id, const char *path, bool *shared,
		     struct error *err);
/*
 * Where the workspace is to be in the place; `asked` NULL: where the place has it. *shown is the
 * same as commands there see it: where a place is only a directory of this host, they see the whole
 * host. Both allocated.
 */
void files_root(const struct files *files, const json_t *lease_metadata, const char *asked,
		char **root, char **shown);
/* False where a provider was told that its places take no relay. */
bool files_take_relay(const struct environment *environment);
/* What is to be mounted as the place's workspace; false: nothing. Borrows from the state. */
bool files_mount(const struct makers *makers, const struct workspace_state *state,
		 const struct environment *environment, const char *masks,
		 struct workspace_mount *mount);
