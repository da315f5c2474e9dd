/*
 * What the files of this room share beside the rows: the service, who is at work on which lease,
 * the queue for capacity, and how a place is finished. Lock order is written down in service.c.
 */
#pragma once

#include <pthread.h>
#include "lease/rows.h"

#define DEFAULT_TTL_MS 3600000      /* a lease that nothing else would end */
#define DEFAULT_RETAIN_MS 86400000  /* of a failed run's place */
#define FREE_KEEP_MS 86400000       /* of a reusable place that nobody asks for */
#define MAX_PERIOD_MS 31622400000LL /* a year: bounds every ttl, idle and retain time */
#define RUN_GRACE_MS 30000          /* a finished run has this long to release by itself */
#define STOP_WAIT_MS 15000          /* for the processes of a place to end */
#define CLAIM_MS 300000             /* a claimed cleanup is nobody else's for so long */
#define CLEANUP_BATCH 20
#define CLEANUP_GIVE_UP_AFTER 5 /* attempts until it is called failed; it is still retried */
#define CLEANUP_CAP_MS 300000

#define ACTION_RELEASE "release"
#define ACTION_DESTROY "destroy"

/* A lease that somebody in this process is acquiring or ending: sweeps keep off. */
struct flight {
	char lease_id[ID_SIZE];
	struct flight *next;
};

struct waiter {
	char key[128]; /* what it waits for; see capacity.c */
	char environment_id[ID_SIZE];
	bool woken; /* there may be room since it looked last */
	int latch;
	struct waiter *next;
};

struct leases {
	struct db *db;
	struct clock *clock;
	struct node node;
	const struct makers *makers;
	int spool_dirfd;
	int64_t sweep_ms, reconcile_ms, cleanup_base_ms, default_retain_ms;
	int64_t max_per_company;
	const struct allow *allow;
	int64_t absence_ms; /* of places that are made; 0: the default */

	pthread_mutex_t lock; /* guards what follows; never held across a blocking call */
	pthread_cond_t changed;
	bool stopping, sweeping, started;
	pthread_t thread;
	struct flight *flights;
	struct flight *pausing; /* leases that are being paused or resumed */
	struct waiter *waiters; /* first come first */
	uint64_t releases;      /* how often capacity may have become free */
	struct given_claim *given_claims;
	size_t given_count;

	/* The sweeper's own. */
	int64_t reconciled_at;
	char **sighted; /* objects that nothing explained last time */
	char **closed;  /* leases whose places could not be opened after the start */
};

/* recover.c: tries once more what could not be opened. */
int open_closed_places(struct leases *leases, struct error *err);

void flight_begin(struct leases *leases, struct flight *flight, const char *lease_id);
void flight_end(struct leases *leases, struct flight *flight);
bool flight_is_under_way(struct leases *leases, const char *lease_id);

/* Capacity (capacity.c). */
struct turn {
	struct leases *leases;
	struct waiter waiter;
	bool queued;
	uint64_t seen; /* `releases` before the last attempt */
	int64_t deadline;
	int cancel_fd;
};
/* `key` names what is scarce; environment, wait_ms and cancel_fd are the request's. */
void turn_begin(struct turn *turn, struct leases *leases, const char *key,
		const struct lease_request *request);
/* True when nobody who came earlier waits for the same: the caller may try. */
bool turn_is_mine(struct turn *turn);
/*
 * After a try that found no room, or when it is another's turn: waits until it is worth trying.
 * 0: try, 1: the time is up, -1: ERR_CANCELLED or ERR_UNAVAILABLE.
 */
int turn_wait(struct turn *turn, struct error *err);
void turn_end(struct turn *turn);
size_t waiters_count(struct leases *leases, const char *key); /* NULL: all */
/* To be called after every commit that may have made room in an environment; NULL: in any. */
void capacity_changed(struct leases *leases, const char *environment_id);
/* 1 when one more lease fits, 0 when not; *used for the message. max 0: no limit. */
int capacity_fits(struct tx *tx, const char *environment_id, int64_t max, int64_t *used,
		  struct error *err);
/* The same for all leases of a company together. */
int company_fits(struct tx *tx, const char *company_id, int64_t max, int64_t *used,
		 struct error *err);

/* Finishing places (cleanup.c). */
/* Ends the processes, then tells the provider; the status is the lease's final one. */
int place_finish(struct leases *leases, const struct place *place, const char *action,
		 enum lease_status status, struct error *err);
/* After place_finish: the place is free, retained or gone, and its lease final. */
int place_finished_tx(struct tx *tx, struct leases *leases, struct place *place,
		      struct lease *lease, const char *action, int64_t now, struct error *err);
int64_t cleanup_next_at(const struct leases *leases, int64_t attempts, int64_t now);
/* Claims (claim.c): up to CLEANUP_BATCH places that are due are the caller's for CLAIM_MS. */
int claim_due_places(struct leases *leases, char ***ids, struct error *err);
/* The claim that runs until then ended with nothing recorded: the next sweep lets go of it. */
void claim_give_back(struct leases *leases, const char *place_id, int64_t until);
void claims_free(struct leases *leases);
/* One attempt at a place that the caller has claimed. 0: finished, -1: queued again. */
int cleanup_try(struct leases *leases, const char *place_id, struct error *err);

/* A row, or a file when the database refuses it, for something that only a provider knows. */
struct orphan {
	struct place place; /* what to destroy; id, company and times filled by the writer */
	char lease_id[ID_SIZE];
	const char *reason;
};
int orphan_write_tx(struct tx *tx, struct leases *leases, const struct orphan *orphan, int64_t now,
		    struct error *err);
int spool_put(struct leases *leases, const struct orphan *orphan, struct error *err);
int spool_flush(struct leases *leases, struct error *err);
void spool_audit(struct leases *leases, json_t *list);

/* The fence (use.c): the one check of who holds a place. */
bool fence_is_off(void);
int fence_check(const struct lease *lease, const struct place *place, int64_t generation,
		struct error *err);
int lease_touch(struct leases *leases, const char *id, struct error *err);

/* Ending (release.c). */
struct ending {
	struct leases *leases;
	const char *lease_id;
	int64_t generation;
	enum lease_status status;
	const char *failure_reason;
	const char *run_error; /* of the run it was for; NULL: none */
	const struct actor *actor;
	const char *action;
	struct lease_also *also;                               /* NULL: nothing */
	bool (*still)(const struct lease *lease, int64_t now); /* sweeps: NULL for always */
	int64_t now;

	bool ended;   /* this call ended the holding */
	bool known;   /* lease and place below are what this call wrote last */
	bool unsaved; /* what was to be written last was refused */
	bool foreign; /* another live node has the place in its hands */
	struct lease lease;
	struct place place;
};
void ending_clear(struct ending *ending);
#define _cleanup_ending_ _cleanup_(ending_clear)
/* Ends the holding and queues the place: the sweep's way, which calls no driver itself. */
int ending_queue(struct ending *ending, struct error *err);
/* `run_error` stands there instead of the row's own word for the failure (spec 01 E.7). */
int lease_released_activity_tx(struct tx *tx, const struct lease *lease, const struct place *place,
			       const char *run_error, const struct actor *actor, int64_t now,
			       struct error *err);

/* Steps of the sweep; each returns -1 only for what should be logged. */
int expire_leases(struct leases *leases, struct error *err);
int end_ownerless_leases(struct leases *leases, struct error *err);
int end_retention(struct leases *leases, struct error *err);
int retire_free_places(struct leases *leases, struct error *err);
int settle_intents(struct leases *leases, struct error *err);
int queue_interrupted_places(struct leases *leases, struct error *err);
int cleanup_due(struct leases *leases, struct error *err);
/* `certain`: nothing is under way, so what is unexplained once need not be seen twice. */
int reconcile(struct leases *leases, bool certain, struct error *err);
/* The object is gone: so are the place, if it is still of that generation, and its lease. */
int place_lose(struct leases *leases, const char *place_id, int64_t generation, const char *reason,
	       struct error *err);

/* What a provider says it has, asked once per pass. */
struct inventories {
	struct inventory {
		enum driver_kind driver;
		char *provider;
		int answer; /* 1 listed, 0 cannot be listed, -1 failed */
		struct maker_inventory list;
		struct error error;
	} * items;
	size_t count;
};
const struct inventory *inventory_of(struct leases *leases, struct inventories *inventories,
				     enum driver_kind driver, const char *provider);
bool inventory_has(const struct inventory *inventory, const char *ref);
void inventories_clear(struct inventories *inventories);
/* Names in the inventory that no place and no intent explains; added to *refs. */
int unexplained_objects(struct leases *leases, const struct inventory *inventory, char ***refs,
			struct error *err);

/* record/row.h's LEASES_OPEN of `leases l`. */
#define SQL_L_OPEN "(l.status = 'active' OR l.status = 'pending_cleanup' OR l.status = 'retained')"

/*
 * Rows this node may touch: its own, and those of nodes whose heartbeat has stopped. Wants $2 =
 * node id and $3 = the oldest heartbeat of a live node.
 */
#define SQL_MINE "(node_id = $2 OR node_id NOT IN (SELECT id FROM nodes WHERE heartbeat_at >= $3))"
