/*
 * Places and leases: never two holders, never a leak. The life of a lease is drawn in lease.c, that
 * of a place in place.c.
 *
 * Every change that something outside depends on is written before the act (an intent, a state) and
 * completed after it; whatever crashes in between is found by recovery and finished or undone.
 * Calls block; they are safe from any thread. Fencing: a caller's `generation` must be the place's
 * present one, else ERR_STALE_GENERATION.
 */
#pragma once

#include "driver/maker.h"
#include "record/activity.h"
#include "record/trust.h"

/* Kept as these numbers. */
enum lease_pause {
	PAUSE_NONE,
	PAUSE_BEGUN, /* its commands may or may not stand still */
	PAUSE_DONE,
};

struct lease {
	char id[ID_SIZE], company_id[ID_SIZE], environment_id[ID_SIZE], place_id[ID_SIZE];
	char workspace_id[ID_SIZE], issue_id[ID_SIZE], agent_id[ID_SIZE], run_id[ID_SIZE];
	int64_t generation;
	enum lease_status status;
	enum lease_status final_status; /* meaningful while status is pending_cleanup */
	enum lease_policy policy;
	char *provider, *provider_lease_id; /* NULL for none */
	int64_t acquired_at, last_used_at, expires_at, released_at;
	int64_t idle_ms, retain_ms;
	enum lease_pause pause; /* meaningful while it is active */
	char *failure_reason, *cleanup_status;
	json_t *metadata;
	char node_id[ID_SIZE];
	int64_t created_at, updated_at;
};
void lease_clear(struct lease *lease);
#define _cleanup_lease_ _cleanup_(lease_clear)
/*
 * Shape of spec 01 A.4 plus generation, agentId, idleSeconds, paused, placeId, placeState, fencing
 * and cleanupError {code, message, attempts, nextAttemptAt}.
 */
json_t *lease_json(const struct lease *lease, const struct place *place); /* place may be NULL */

struct leases;

struct leases_options {
	struct db *db;
	struct clock *clock;
	const struct node *node;
	const struct makers *makers;
	int spool_dirfd;           /* duplicated */
	int64_t sweep_ms;          /* pause between sweeps; 0: 1000 */
	int64_t reconcile_ms;      /* pause between comparisons with the providers; 0: 30 s */
	int64_t cleanup_base_ms;   /* first back-off; 0: 1000; doubles up to 5 min */
	int64_t default_retain_ms; /* 0: 24 h */
	int64_t max_per_company;   /* leases at a time; 0: no limit */
	/* What places may have of this host for callers with tokens; borrowed. NULL: nothing. */
	const struct allow *allow;
	int64_t absence_ms; /* of the places' relays, for the record; 0: 15 min */
};
int leases_new(const struct leases_options *options, struct leases **leases, struct error *err);
/*
 * Before serving: flushes the spool, settles this node's intents and half-done releases of earlier
 * boots (and those of dead nodes), queues what nobody holds for cleanup. Idempotent.
 */
int leases_recover(struct leases *leases, struct error *err);
/* The sweep thread: expiry, idleness, retention, cleanup with back-off, reconcile, terminal runs.
 */
int leases_start(struct leases *leases, struct error *err);
void leases_stop(struct leases *leases);
void leases_free(struct leases *leases);
/* One pass now, for tests and for `prune`; returns after everything due was tried once. */
int leases_sweep(struct leases *leases, struct error *err);

/*
 * What the caller writes in the lease's own transaction, so that both are there or neither. `write`
 * has no effect but its statements and may run more than once; `done`: it was committed.
 */
struct lease_also {
	int (*write)(struct tx *tx, const struct lease *lease, void *arg, struct error *err);
	void *arg;
	bool done;
};

/*
 * Something to begin in the place as soon as the lease is committed. If it fails there is no lease
 * and no place, as after any failure of an acquire. It is not called for a lease that was there
 * already.
 */
struct lease_first {
	int (*begin)(void *arg, const struct place *place, struct error *err); /* NULL: nothing */
	void *arg;
};

struct lease_request {
	const char *lease_id; /* chosen beforehand (idempotency), or NULL */
	bool lease_id_is_new; /* no request has had it before */
	const char *company_id;
	const struct environment *environment;
	const char *run_id, *issue_id, *agent_id, *workspace_id,
		*workspace_mode; /* NULL for none */
	/*
	 * What the place is to have as its /workspace; NULL: a directory of its own. Where that
	 * cannot be had (another provider, a file system that cannot be laid under) lease_acquire
	 * says ERR_UNPROCESSABLE in words for people: ask again without it and copy.
	 */
	const struct workspace_mount *workspace;
	const enum lease_policy *policy; /* NULL: what the environment's config implies */
	/* 0: none / default. A lease with neither run, ttl nor idle time gets an hour. */
	int64_t ttl_ms, idle_ms, retain_ms;
	int64_t wait_ms; /* for capacity; 0: refuse at once, <0: as long as it takes */
	int cancel_fd;   /* becomes readable to give up waiting (ERR_CANCELLED); -1: none */
	const struct actor *actor;
	void (*on_wait)(void *arg, const char *reason); /* told once when waiting begins */
	void *on_wait_arg;
	struct lease_first first;
	struct lease_also *also; /* with the row of the lease; NULL: nothing */
};
/*
 * All or nothing: on error no lease row exists and whatever a provider made is destroyed, queued
 * for cleanup, or spooled to disk. ERR_ENV_NOT_FOUND, ERR_ENV_INACTIVE, ERR_PLACE_BUSY with details
 * {reason, holderLeaseId?, waiting}, ERR_LEASE_ACQUIRE wrapping the driver's cause, ERR_TRANSPORT
 * when what was made cannot be reached, ERR_UNSUPPORTED_ENV, ERR_VALIDATION and ERR_UNPROCESSABLE
 * for a policy that cannot be kept. Capacity is first come, first served. A lease_id whose lease is
 * active gives that lease again; one whose lease has ended is ERR_LEASE_ENDED. Writes activity
 * environment.lease_acquired.
 */
int lease_acquire(struct leases *leases, const struct lease_request *request, struct lease *lease,
		  struct place *place, struct error *err);

int lease_get(struct leases *leases, const char *id, struct lease *lease, struct place *place,
	      struct error *err); /* place may be NULL; ERR_NOT_FOUND */
/* The lease that holds the place now, for that generation; ERR_NOT_FOUND. */
int lease_of_place(struct leases *leases, const char *place_id, int64_t generation,
		   struct lease *lease, struct error *err);
/*
 * After a restart, for whoever goes on with a command there: the place takes commands again, if it
 * could not be opened before. ERR_LEASE_ENDED or ERR_NOT_FOUND: this holding is over; all else may
 * go better the next time.
 */
int lease_open_again(struct leases *leases, const char *id, struct lease *lease,
		     struct place *place, struct error *err);
/* Array of lease JSON, last used first; status NULL for any. At most limit. */
json_t *lease_list(struct leases *leases, const char *environment_id, const char *status,
		   int64_t limit, struct error *err);

#define GENERATION_UNCHECKED (-1)
/* Without a ttl (0) a lease that has an end gets at least an hour. Never past the provider's own.
 */
int lease_renew(struct leases *leases, const char *id, int64_t generation, int64_t ttl_ms,
		struct lease *lease, struct error *err);
/* For exec and files: active, right generation; counts as use. Fills lease and place. */
int lease_use(struct leases *leases, const char *id, int64_t generation, struct lease *lease,
	      struct place *place, struct error *err);

/* ERR_LEASE_PAUSED for one that is paused: it takes no new commands. */
int lease_takes_commands(const struct lease *lease, struct error *err);
/*
 * Freezes every command in the place, or lets them go on; once or twice is the same. New commands
 * are refused meanwhile (ERR_LEASE_PAUSED), files are not; time goes on counting.
 * ERR_UNSUPPORTED_ENV where commands cannot be frozen. Writes activity environment.lease_paused or
 * environment.lease_resumed.
 */
int lease_pause(struct leases *leases, const char *id, int64_t generation, bool paused,
		const struct actor *actor, struct error *err);

struct lease_release {
	int64_t generation;         /* or GENERATION_UNCHECKED */
	enum lease_status status;   /* released, expired or failed */
	const char *failure_reason; /* NULL for none */
	const char *run_error;      /* the activity's failureReason instead; NULL: the row's */
	const struct actor *actor;
	struct place *place;     /* gets the place as it is afterwards; NULL: nobody asks */
	struct lease_also *also; /* once the place is given back; NULL: nothing */
};
/*
 * Ends the holding: processes end, the provider is told, the row leaves `active` whatever the
 * provider says; a provider that fails leaves pending_cleanup and a retry. Repeated by the right
 * holder it is success. Writes activity environment.lease_released.
 */
int lease_release(struct leases *leases, const char *id, const struct lease_release *release,
		  struct lease *lease, struct error *err);
/*
 * Every active lease of a run, each on its own: one that fails does not keep the others. Array of
 * {leaseId, status, code|null, error|null}; NULL only when the database failed. `run_error` (NULL:
 * none) is the failureReason of the activity; the row of a failed lease says
 * "adapter_or_run_failure". `also` goes with the last of them; NULL: nothing does.
 */
json_t *lease_release_run(struct leases *leases, const char *run_id, enum lease_status status,
			  const char *run_error, struct lease_also *also, const struct actor *actor,
			  struct error *err);
/*
 * Ends the holding and the place: an active lease becomes `failed`, the place is destroyed. Also
 * for a place that is retained, or free since this lease. Returns 0 when the driver failed, too:
 * the place is then queued (place->state is cleanup) and tried again. lease and place may be NULL.
 */
int lease_destroy(struct leases *leases, const char *id, int64_t generation,
		  const struct actor *actor, struct lease *lease, struct place *place,
		  struct error *err);
/* Destroys every free place of an environment; one that fails stays in the cleanup queue. */
int leases_retire_environment(struct leases *leases, const char *environment_id, struct error *err);
/*
 * Why a place in the cleanup queue is still there: ERR_LEASE_RELEASE when the driver failed once to
 * release it, ERR_LEASE_CLEANUP when it failed again or could not destroy it; ERR_NONE when the
 * driver has not failed.
 */
enum error_code place_cleanup_error(const struct place *place);
/* Replaces metadata, a JSON object as text; for workspaceRealization. */
int lease_set_metadata_tx(struct tx *tx, int64_t now, const char *id, const char *metadata,
			  struct error *err);

/*
 * Every object that no place explains, and every promise not yet kept: array of
 * {kind, id, where, reason, since}, and code where a driver failed; empty when all is well. Kinds:
 * "place" (active without owner, cleanup pending), "intent", "provider_object", "spool", "process".
 */
json_t *leases_audit(struct leases *leases, struct error *err);
/* Counts for health: {active, free, retained, cleanup, intents, waiting}. */
json_t *leases_counts(struct leases *leases, struct error *err);
/* Removes finished leases, gone places and settled intents older than the time; returns how many.
 */
struct leases_prune {
	int64_t before_ms;
	bool dry_run; /* counts the leases that would go */
	/* Whether a lease that ended then must stay; NULL: none must. */
	bool (*holds)(void *arg, const char *lease_id, int64_t released_at);
	void *holds_arg;
};
int64_t leases_prune(struct leases *leases, const struct leases_prune *options, struct error *err);
