/*
 * The commands that were started through the API. A client that goes away does not end its exec,
 * and neither does the end of this server, whose successor takes it up again.
 *
 * The relay is the record of a running command: it keeps the exec with a note of ours until it is
 * told to forget it. The server writes a record when a command has ended. Before the start it writes
 * one only for an exec with an Idempotency-Key, which is `kept`: that record is durable and stays
 * with its output for as long as the key does. The others are recent history: the last RECENT_EXECS
 * of them, for an hour, within RECENT_BYTES of output. Most commands end as soon as they have begun:
 * the caller waits for those, and their record is in memory only, as is their output while it is
 * short. The head of execs.c draws the phases of an exec.
 */
#pragma once

#include "exec/exec_store.h"
#include "lease/lease.h"

struct execs;
struct live_exec;

struct execs_options {
	const struct makers *makers;
	struct places *places;
	struct leases *leases; /* to open places with that a start could not open; NULL: none */
	struct clock *clock;
	int dirfd;          /* <data>/execs; duplicated */
	int64_t log_bytes;  /* bound of one log; 0: none */
	size_t max_running; /* 0: 1024 */
};
int execs_new(const struct execs_options *options, struct execs **execs, struct error *err);
/*
 * Takes up commands whose records say that they run: kept ones, those of an earlier revision, and
 * those of relays that keep no note. Each is on the list at once, and its thread looks for its
 * relay until that or its keeper has reported what became of it.
 */
int execs_recover(struct execs *execs, struct error *err);
/* A command that a relay holds and this server does not know. */
struct found_exec {
	const char *id, *lease_id, *place_id;
	int64_t generation, started_ms;
	const char *note; /* that came from the relay; NULL: none */
	bool found;       /* it is shown as found: no server has written anything of it here */
};
int execs_take_up(struct execs *execs, const struct found_exec *found, struct error *err);
/* A server has begun to write its output down. */
bool execs_has_output(struct execs *execs, const char *id);
/* Whether it is, or was, one of these. */
bool execs_know(struct execs *execs, const char *id);
/* Those of a lease that are going: array as execs_describe. */
json_t *execs_of_lease(struct execs *execs, const char *lease_id);
/* Every now and then: tries once more what execs_recover could not begin with. */
void execs_recover_rest(struct execs *execs);
/* Lets go of what is going (places_detach) and waits until nobody here has to do with it. */
void execs_stop(struct execs *execs);
void execs_free(struct execs *execs); /* after execs_stop */
size_t execs_active(struct execs *execs);
/* Forgets kept execs that ended before the time; returns how many, or -1. */
int64_t execs_prune(struct execs *execs, int64_t before_ms, struct error *err);

struct exec_outcome {
	struct exec_result result;
	char error[256];      /* what went wrong beside the command itself; "" for nothing */
	int64_t output_bytes; /* how much it wrote */
	int64_t output_lost;  /* of that; more than 0 only when the machine went down */
};
/* {exitCode, signal, reason, durationMs, error?, outputLost?} */
void exec_outcome_put(json_t *object, const struct exec_outcome *outcome);

struct exec_order {
	const struct place *place;
	const char *lease_id;
	const struct exec_spec *spec; /* log is made here, everything else must be filled */
	bool kept;
	bool kill_when_left; /* onDisconnect: kill */
	/* The caller waits for its end or its first output, for a moment: it may be over by then. */
	bool unannounced;
	/*
	 * With that: a command that has printed something and goes on is given back at once, so that
	 * its first output need not wait. live_exec_detach is due, and soon: until then nothing takes
	 * what it prints.
	 */
	bool first_words;
};
/* ERR_TOO_MANY when too many run. The reference belongs to the caller. */
int execs_start(struct execs *execs, const struct exec_order *order, struct live_exec **live,
		struct error *err);
/*
 * For the caller of execs_start, whose answer did not wait for it: from here on a thread takes what
 * else the command prints. Nothing to do for one that needs no such call. -1: the command was ended.
 */
int live_exec_detach(struct live_exec *live, struct error *err);
bool live_exec_is_deferred(struct live_exec *live);                /* that call is due */
struct live_exec *execs_find(struct execs *execs, const char *id); /* new reference or NULL */
void live_exec_unref(struct live_exec *live);
/* As execs_read. */
int live_exec_read(struct live_exec *live, int64_t since, struct runlog_reader **reader,
		   struct error *err);
bool live_exec_dies_when_left(const struct live_exec *live);
/* Valid once the log is not live any more. */
void live_exec_outcome(struct live_exec *live, struct exec_outcome *outcome);

/*
 * What is known of an exec, going or ended: {id, leaseId, placeId, generation, command, tty,
 * stdinStream, onDisconnect, createdAt, status: running|ended, and when ended: endedAt and its
 * outcome}. ERR_NOT_FOUND when there never was one or it was pruned.
 */
json_t *execs_describe(struct execs *execs, const char *id, struct error *err);
/* Of an exec that has ended. */
int execs_recall(struct execs *execs, const char *id, struct exec_outcome *outcome,
		 struct error *err);
/* The log of an exec from that offset on. ERR_NOT_FOUND when it was pruned. */
int execs_read(struct execs *execs, const char *id, int64_t since, struct runlog_reader **reader,
	       struct error *err);

/*
 * Who sits at an exec's terminal. Somebody who wants it alone replaces all others: each finds
 * `replaced` set when its wake_fd becomes readable. Any exec id, also that of a run.
 */
struct terminal_holder {
	struct terminal_holder *next;
	char id[ID_SIZE];
	int wake_fd;   /* latch of the caller's */
	bool replaced; /* read it through terminal_holder_is_replaced */
};
void terminal_attach(struct execs *execs, struct terminal_holder *seat, bool alone);
bool terminal_holder_is_replaced(struct execs *execs, const struct terminal_holder *seat);
size_t terminal_detach(struct execs *execs,
		       struct terminal_holder *seat); /* how many still sit there */
