/*
 * How the fake provider misbehaves on demand. Its config key `faults` names operations, each with
 * what shall go wrong there:
 *
 *     "faults": {"acquire": {"fail": 2, "message": "no capacity"}, "destroy": {"hang": true}}
 *
 *     fail        refuses before anything is done; a probe answers ok:false
 *     hang        does nothing and answers ERR_TIMEOUT when the deadline has passed
 *     answerLate  does everything and answers ERR_TIMEOUT when the deadline has passed
 *     twice       does it two times over; an inventory lists everything twice
 *     lose        the place vanishes behind our back: acquire, before it answers as if all were
 *                 well; resume, which says that there is nothing to resume; release; execute,
 *                 before the command starts. An inventory leaves the environment's places out
 *     delayMs     waits that long before acting, at most until the deadline
 *     deadlineMs  gives up after that long, if the caller's own deadline (30 s) is not shorter
 *     message     said by fail instead of the general text
 *
 * The switches are true or a number N: the first N calls. Calls are counted on disk, by
 * environment (a probe: by config), operation and plan, so that a restart goes on counting and a
 * changed plan starts anew. Which keys an operation takes is in the tables of fake_faults.c.
 *
 * An inventory has no config of its own: it follows the plans recorded with the places.
 * Faults are obeyed only by a server that allows the fake provider.
 */
#pragma once

#include "driver/fake/fake_journal.h"
#include "driver/maker.h"

#define FAKE_OPERATIONS(X)                                                                         \
	X(FAKE_ACQUIRE, "acquire")                                                                 \
	X(FAKE_RESUME, "resume")                                                                   \
	X(FAKE_RELEASE, "release")                                                                 \
	X(FAKE_DESTROY, "destroy")                                                                 \
	X(FAKE_INVENTORY, "inventory")                                                             \
	X(FAKE_PROBE, "probe")                                                                     \
	X(FAKE_EXECUTE, "execute")

enum fake_operation {
#define X(name, wire) name,
	FAKE_OPERATIONS(X)
#undef X
};

extern const struct field FAKE_FAULT_FIELDS[];
/* What a switch may not hold; NULL when all is well. */
const char *fake_faults_refuse(const json_t *faults);

/* One call of an operation under its plan. */
struct fake_call {
	enum fake_operation operation;
	struct clock *clock;
	int64_t started, deadline_ms;
	bool fail, twice, lose, late;
	const char *message; /* of fail; borrowed from the plan or NULL */
};

struct fake_plan {
	enum fake_operation operation;
	const json_t *faults; /* the whole object, or NULL for a provider that behaves */
	const char *scope;    /* whose calls are counted */
	int64_t deadline_ms;  /* the caller's; 0: none */
};
/* Waits, hangs and counts; what is left to the operation is in the call. */
int fake_call_begin(struct fake_journal *journal, struct clock *clock, const struct fake_plan *plan,
		    struct fake_call *call, struct error *err);
/* The error of a call that shall fail. */
int fake_call_refuse(const struct fake_call *call, struct error *err);
/* After the act: the answer itself may still come too late. */
int fake_call_end(const struct fake_call *call, struct error *err);
