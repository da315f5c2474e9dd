/*
 * Live events (spec 04 section 13): what happened in a company, numbered in the order of commits.
 *
 * Events and the activity log share one sequence: whoever takes a number holds the counter's row
 * until it commits, so a reader that has seen number n never finds a smaller one later, and "all
 * events after n" is complete. An entry of the activity log is itself the event `activity.logged`,
 * read from where it is and never written twice. `heartbeat.run.log` is no row at all: it only says
 * that a log has grown, and logs have byte offsets of their own to go on from.
 *
 * Old events are pruned by age and by count; a company's floor is the highest number that is gone.
 */
#pragma once

#include "record/record.h"

#define EVENT_TYPES(X)                                                                             \
	X(EVENT_RUN_QUEUED, "heartbeat.run.queued")                                                \
	X(EVENT_RUN_STATUS, "heartbeat.run.status")                                                \
	X(EVENT_RUN_LOG, "heartbeat.run.log")                                                      \
	X(EVENT_AGENT_STATUS, "agent.status")                                                      \
	X(EVENT_WORKSPACE_PROGRESS, "workspace.progress")                                          \
	X(EVENT_WORKSPACE_STAGED, "workspace.staged")                                              \
	X(EVENT_WORKSPACE_COLLECTED, "workspace.collected")                                        \
	X(EVENT_ACTIVITY, "activity.logged")
enum event_type {
#define X(name, wire) name,
	EVENT_TYPES(X)
#undef X
		EVENT_TYPE_COUNT
};
const char *event_type_name(enum event_type type);
bool event_type_parse(const char *name, enum event_type *type); /* false when unknown */

struct event {
	const char *company_id;
	enum event_type type;
	const char *run_id; /* NULL: about no run */
	json_t *payload;    /* borrowed object; never values of secrets or output */
};
/* With the change it tells of: same transaction. */
int event_write_tx(struct tx *tx, int64_t now, const struct event *event, struct error *err);
/*
 * Takes the next number of the sequence, which is held until the transaction ends. The statement
 * that needs it says EVENT_NUMBER: for RETURNING, SQLite makes a table each time.
 */
#define EVENT_NUMBER "(SELECT value FROM counters WHERE name = 'activity')"
int event_number_tx(struct tx *tx, struct error *err);

struct event_row {
	int64_t seq, created_at;
	enum event_type type;
	char *payload; /* JSON text */
};
/* Empty it before each use. */
struct event_page {
	struct event_row *rows; /* ascending */
	size_t count;
	bool more;     /* than the limit */
	int64_t now;   /* the newest number of all companies when the page was read */
	int64_t floor; /* the highest number of this company that was pruned; 0: none */
};
void event_page_clear(struct event_page *page);
#define _cleanup_event_page_ _cleanup_(event_page_clear)
#define EVENT_PAGE_MAX 500
/* Events of a company after a number; limit 1..EVENT_PAGE_MAX, 0 reads only `now` and `floor`. */
int events_after(struct db *db, const char *company_id, int64_t after, int64_t limit,
		 struct event_page *page, struct error *err);
/* Array of {seq, runId, agentId, eventType, payload, createdAt}, ascending; NULL on error. */
json_t *events_of_run(struct db *db, const char *run_id, int64_t after, int64_t limit,
		      struct error *err);

/*
 * Forgets events (not the activity, which activity_prune does) older than the time, and of each
 * company all but the newest `keep`. Returns how many, or -1. The tallies are what one pruning
 * remembers for the next, for as long as the program runs.
 */
struct event_tallies;
struct event_tallies *event_tallies_new(void);
void event_tallies_free(struct event_tallies *tallies);
int64_t events_prune(struct db *db, struct event_tallies *tallies, int64_t before_ms, int64_t keep,
		     struct error *err);
/* Says that events of the company up to this number are gone; for those who prune. */
int event_raise_floor_tx(struct tx *tx, const char *company_id, int64_t seq, struct error *err);
