#include "driver/fake/fake_faults.h"

#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "base/sha256.h"
#include "base/text.h"

#define DEFAULT_DEADLINE_MS 30000
#define MAX_WAIT_MS 600000
#define MAX_CALLS 1000000
#define NAP_MS 20

static const char *const operation_names[] = {
#define X(name, wire) [name] = wire,
	FAKE_OPERATIONS(X)
#undef X
};

static const char *const switches[] = { "fail", "hang", "answerLate", "twice", "lose" };

#define SWITCH(key, text)                                                                          \
	{                                                                                          \
		.name = key, .type = FIELD_ANY, .summary = text                                    \
	}
#define FAIL SWITCH("fail", "refuse: true, or the first N calls")
#define HANG SWITCH("hang", "do nothing until the deadline: true, or the first N calls")
#define LATE SWITCH("answerLate", "act, but answer too late: true, or the first N calls")
#define TWICE SWITCH("twice", "act two times over: true, or the first N calls")
#define LOSE SWITCH("lose", "the place vanishes: true, or the first N calls")
#define TIMES                                                                                      \
	{ .name = "delayMs",                                                                       \
	  .type = FIELD_INT,                                                                       \
	  .min = 1,                                                                                \
	  .max = MAX_WAIT_MS,                                                                      \
	  .summary = "wait before acting" },                                                       \
		{ .name = "deadlineMs",                                                            \
		  .type = FIELD_INT,                                                               \
		  .min = 1,                                                                        \
		  .max = MAX_WAIT_MS,                                                              \
		  .summary = "give up after that long" },                                          \
	{                                                                                          \
		.name = "message", .type = FIELD_STRING, .flags = FIELD_NONBLANK, .max = 300,      \
		.summary = "what a refusal says"                                                   \
	}

static const struct field ACQUIRE_FIELDS[] = { FAIL, HANG, LATE, TWICE, LOSE, TIMES, { 0 } };
static const struct field RESUME_FIELDS[] = { FAIL, HANG, LATE, LOSE, TIMES, { 0 } };
static const struct field RELEASE_FIELDS[] = { FAIL, HANG, LATE, TWICE, LOSE, TIMES, { 0 } };
static const struct field DESTROY_FIELDS[] = { FAIL, HANG, LATE, TWICE, TIMES, { 0 } };
static const struct field INVENTORY_FIELDS[] = { FAIL, HANG, LATE, TWICE, LOSE, TIMES, { 0 } };
static const struct field PROBE_FIELDS[] = { FAIL, HANG, LATE, TIMES, { 0 } };
/* A command that runs while its start is answered with an error would be nobody's: none of that. */
static const struct field EXECUTE_FIELDS[] = { FAIL, HANG, LOSE, TIMES, { 0 } };

#define OPERATION(key, table)                                                                      \
	{                                                                                          \
		.name = key, .type = FIELD_OBJECT, .fields = table                                 \
	}
const struct field FAKE_FAULT_FIELDS[] = {
	OPERATION("acquire", ACQUIRE_FIELDS),     OPERATION("resume", RESUME_FIELDS),
	OPERATION("release", RELEASE_FIELDS),     OPERATION("destroy", DESTROY_FIELDS),
	OPERATION("inventory", INVENTORY_FIELDS), OPERATION("probe", PROBE_FIELDS),
	OPERATION("execute", EXECUTE_FIELDS),     { 0 },
};

static bool is_switch(const json_t *value)
{
	json_int_t calls = json_integer_value(value);

	return !value || json_is_true(value) ||
	       (json_is_integer(value) && calls >= 1 && calls <= MAX_CALLS);
}

const char *fake_faults_refuse(const json_t *faults)
{
	const char *key;
	json_t *entry;

	json_object_foreach ((json_t *)faults, key, entry) {
		for (size_t i = 0; i < ARRAY_SIZE(switches); i++) {
			if (!is_switch(json_object_get(entry, switches[i])))
				return "switches must be true or a number of calls";
		}
	}
	return NULL;
}

/* Counting from 1, the call-th call. */
static bool is_on(const json_t *entry, const char *key, int64_t call)
{
	const json_t *value = json_object_get(entry, key);

	return json_is_true(value) || (json_is_integer(value) && call <= json_integer_value(value));
}

static bool counts_calls(const json_t *entry)
{
	for (size_t i = 0; i < ARRAY_SIZE(switches); i++) {
		if (json_is_integer(json_object_get(entry, switches[i])))
			return true;
	}
	return false;
}

static int64_t count_call(struct fake_journal *journal, const struct fake_plan *plan,
			  const json_t *entry, struct error *err)
{
	_cleanup_free_ char *text = json_canonical(entry);
	_cleanup_free_ char *key = xasprintf("%s\n%s\n%s", plan->scope ? plan->scope : "",
					     operation_names[plan->operation], text);
	char hash[SHA256_HEX_SIZE];

	sha256_hex(key, strlen(key), hash);
	return fake_journal_count(journal, hash, err);
}

/*
 * Until the call is ms old by the host's clock, or by the real one: a test's clock that stands
 * still holds nobody for ever.
 */
static void wait_until(const struct fake_call *call, int64_t ms)
{
	int64_t real = boottime_ms(), left = ms - (clock_mono(call->clock) - call->started);
	int64_t real_end = real + left;

	while (left > 0 && real < real_end) {
		struct timespec nap = { .tv_nsec = MIN_OF(left, NAP_MS) * 1000000 };

		clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
		left = ms - (clock_mono(call->clock) - call->started);
		real = boottime_ms();
	}
}

static int timed_out(const struct fake_call *call, struct error *err)
{
	wait_until(call, call->deadline_ms);
	return error_set(err, ERR_TIMEOUT, "sandbox provider \"fake\": no answer to %s in %lld ms",
			 operation_names[call->operation], (long long)call->deadline_ms);
}

int fake_call_begin(struct fake_journal *journal, struct clock *clock, const struct fake_plan *plan,
		    struct fake_call *call, struct error *err)
{
	const json_t *entry = json_object_at(plan->faults, operation_names[plan->operation]);
	int64_t n = 1;

	*call = (struct fake_call){ .operation = plan->operation, .clock = clock };
	if (!entry)
		return 0;
	if (counts_calls(entry)) {
		n = count_call(journal, plan, entry, err);
		if (n < 0)
			return -1;
	}
	call->started = clock_mono(clock);
	call->deadline_ms = json_int(entry, "deadlineMs", DEFAULT_DEADLINE_MS);
	if (plan->deadline_ms > 0)
		call->deadline_ms = MIN_OF(call->deadline_ms, plan->deadline_ms);
	call->fail = is_on(entry, "fail", n);
	call->late = is_on(entry, "answerLate", n);
	call->twice = is_on(entry, "twice", n);
	call->lose = is_on(entry, "lose", n);
	call->message = json_str(entry, "message");

	int64_t delay = json_int(entry, "delayMs", 0);

	if (is_on(entry, "hang", n) || delay >= call->deadline_ms)
		return timed_out(call, err);
	wait_until(call, delay);
	return 0;
}

int fake_call_refuse(const struct fake_call *call, struct error *err)
{
	if (call->message)
		return error_set(err, ERR_UNAVAILABLE, "%s", call->message);
	return error_set(err, ERR_UNAVAILABLE,
			 "sandbox provider \"fake\" refuses %s, as it was told",
			 operation_names[call->operation]);
}

int fake_call_end(const struct fake_call *call, struct error *err)
{
	return call->late ? timed_out(call, err) : 0;
}
