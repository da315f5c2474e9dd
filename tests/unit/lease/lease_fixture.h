/*
 * A server's lower half for tests of leases: the records of ../record (a database of its own and a
 * clock that stands still), the fake provider with its inventory on disk, a real places, and the
 * leases over them. The provider and its places live in real time.
 */
#pragma once

#include "../driver/makers.h"

#include "../record/record_fixture.h"
#include "lease/lease.h"

struct yard {
	struct records *r;
	struct db *db;
	struct error *err;
	char *providers_path, *home_path;
	int providers_fd, spool_fd;
	struct clock system;
	struct places *places;
	struct maker_host host;
	struct makers makers;
	struct node node;
	struct leases *leases;
	struct runlog_store *logs;
	struct environment local;
};

int yard_setup_sqlite(void **state);
int yard_setup_postgres(void **state);
int yard_teardown(void **state);
struct yard *yard_of(void **state);
#define YARD(test) cmocka_unit_test_setup_teardown(test, yard_setup_sqlite, yard_teardown)
#define YARD_POSTGRES(test)                                                                        \
	{                                                                                          \
#test " (postgresql)", test, yard_setup_postgres, yard_teardown, NULL              \
	}
#define YARD_BOTH(test) YARD(test), YARD_POSTGRES(test)

/* The same data under a new server: the old one is gone without a word. */
void yard_restart(struct yard *y);
/* The parts over an open database, without recovery; for a process that is to be killed. */
void yard_start(struct yard *y);
void yard_stop(struct yard *y);

/* JSON with single quotes; `max` 0 for no limit. */
void yard_sandbox(struct yard *y, const char *name, const char *config, int64_t max,
		  struct environment *out);
#define FAKE "{'provider':'fake','image':'alpine','reuseLease':false}"
#define FAKE_REUSED "{'provider':'fake','image':'alpine','reuseLease':true}"

struct lease_request yard_request(struct yard *y, const struct environment *environment);
/* Acquired with the request as it is, or the test fails. */
void yard_acquire(struct yard *y, const struct lease_request *request, struct lease *lease);
void yard_acquire_from(struct yard *y, const struct environment *environment, struct lease *lease);
/* Released as its holder, or the test fails; the lease is updated. */
void yard_release(struct yard *y, struct lease *lease);
int yard_end(struct yard *y, const char *id, int64_t generation, enum lease_status status,
	     struct lease *lease);
int yard_set_metadata(struct yard *y, const char *id, const json_t *metadata);
void yard_sweep(struct yard *y);
/* Lets the clock run and sweeps. */
void yard_pass(struct yard *y, int64_t ms);

void yard_reload(struct yard *y, struct lease *lease);
/* "held", "free", ...; allocated; NULL when there is no such place. */
char *yard_place_state(struct yard *y, const char *place_id);
void assert_place(struct yard *y, const char *place_id, const char *state);
size_t yard_inventory(struct yard *y);
bool yard_has(struct yard *y, const char *ref);
void assert_status(struct yard *y, const char *lease_id, const char *status);
/* Nothing in audit; says what there is otherwise. */
void assert_clean(struct yard *y);
/* How many entries of a kind audit shows. */
size_t yard_audit_count(struct yard *y, const char *kind);
int64_t yard_lease_rows(struct yard *y);
/* A run's row, in the given status. */
void yard_run(struct yard *y, const char *id, const char *status, int64_t finished_at);
void yard_set_run_status(struct yard *y, const char *id, const char *status);
/* How many activity rows have this action. */
size_t yard_activity_count(struct yard *y, const char *action);

void fault_arm(const char *spec);
void fault_disarm(void);

/* A shell script in the place of a lease, by its generation. */
int yard_exec_begin(struct yard *y, const struct lease *lease, const char *script,
		    struct runlog **log, struct exec **exec, struct error *err);
int yard_exec_end(struct runlog *log, struct exec *exec, struct exec_result *result,
		  struct error *err);
/* Both. */
int yard_exec(struct yard *y, const struct lease *lease, const char *script, struct error *err);
