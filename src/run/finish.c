/*
 * How a run ends: what the steps left behind becomes the row's last words, then the leases are
 * released.
 */
#include "run/job.h"

#include "base/log.h"
#include "base/text.h"
#include "run/prompt.h"
#include "run/row.h"

#define RELEASE_TRIES 6

/* What the steps left behind, as a row's last words. `text` receives a message that needs building.
 */
static void describe_exit(const struct run_job *w, struct run_ending *end, char **text)
{
	const struct exec_result *r = &w->result;

	end->reason = exec_reason_name(r->reason);
	end->has_exit_code = r->exit_code >= 0;
	end->exit_code = r->exit_code;
	end->signal = r->signal[0] ? r->signal : NULL;
	switch (r->reason) {
	case EXEC_EXITED:
		if (r->exit_code == 0) {
			end->status = RUN_SUCCEEDED;
			return;
		}
		*text = xasprintf("the command exited with code %d", r->exit_code);
		end->error_code = "adapter_failed";
		break;
	case EXEC_TIMEOUT:
		end->status = RUN_TIMED_OUT;
		*text = xasprintf("the command ran longer than %lld ms and was ended",
				  (long long)run_time_limit(w->run, w->place.config.json));
		end->error_code = error_code_name(ERR_TIMEOUT);
		break;
	case EXEC_CANCELLED:
		end->status = RUN_CANCELLED;
		*text = xstrdup("cancelled");
		end->error_code = error_code_name(ERR_CANCELLED);
		break;
	case EXEC_LEASE_LOST:
		*text = xstrdup("the lease ended while the command was running");
		end->error_code = error_code_name(ERR_LEASE_LOST);
		break;
	case EXEC_OOM:
		*text = xstrdup("the command took more memory than its place has and was killed");
		end->error_code = "adapter_failed";
		break;
	default:
		*text = xasprintf("the command was ended by %s",
				  r->signal[0] ? r->signal : "a signal");
		end->error_code = "adapter_failed";
		break;
	}
	end->error = *text;
}

static void describe_error(const struct run_job *w, struct run_ending *end)
{
	end->error = w->err.message;
	end->error_code = error_code_name(w->err.code);
	switch (w->err.code) {
	case ERR_CANCELLED:
		end->status = RUN_CANCELLED;
		end->reason = exec_reason_name(EXEC_CANCELLED);
		break;
	case ERR_COMMAND_NOT_FOUND:
	case ERR_COMMAND_DENIED:
		end->has_exit_code = true;
		end->exit_code = w->err.code == ERR_COMMAND_NOT_FOUND ? 127 : 126;
		end->reason = exec_reason_name(EXEC_EXITED);
		break;
	default:
		break;
	}
}

/* A database that refuses does not change what happened: try until it takes it or the server stops.
 */
static void write_ending(struct run_job *w, const struct run_ending *end)
{
	int64_t pause_ms = 50;

	for (;;) {
		_cleanup_error_ struct error err = { 0 };

		if (run_set_end(w->o->db, w->o->clock, w->run->id, end, w->run->log_bytes, &err) >=
		    0)
			return;
		log_error("run %s ended %s, which could not be recorded: %s", w->run->id,
			  run_status_name(end->status), err.message);
		if (!runs_pause(w->o->runs, pause_ms))
			return;
		pause_ms = MIN_OF(pause_ms * 2, 5000);
	}
}

/* What is known when the work is home. The place is taken down after that. */
static json_t *timings_of(const struct run_job *w)
{
	json_t *timings = json_object();

	json_put_int(timings, "acquiredMs", w->times.acquired_ms);
	json_put_int(timings, "realizedMs", w->times.realized_ms);
	if (w->files.path)
		json_put_int(timings, "stagedMs", w->times.staged_ms);
	json_put_int(timings, "provisionedMs", w->times.provisioned_ms);
	json_put_int(timings, "executedMs", w->times.executed_ms);
	if (w->files.path)
		json_put_int(timings, "collectedMs", w->times.collected_ms);
	json_put_int(timings, "totalMs", w->times.total_ms);
	return timings;
}

/* Of a failed run whose place is kept for a look: how to find it, and until when. */
static json_t *retained(const struct run_job *w, enum run_status status)
{
	json_t *result, *lease;

	if (!id_is_set(w->lease.id) || w->lease.policy != POLICY_RETAIN_ON_FAILURE ||
	    lease_status_for_run(status) != LEASE_FAILED)
		return NULL;
	result = json_object();
	lease = json_object();
	json_put_str(lease, "leaseId", w->lease.id);
	json_put_time(lease, "until", clock_now(w->o->clock) + w->lease.retain_ms);
	json_put_new(result, "retained", lease);
	return result;
}

void job_end(struct run_job *w)
{
	_cleanup_json_ json_t *result = NULL;
	_cleanup_json_ json_t *timings = timings_of(w);
	_cleanup_free_ char *text = NULL;
	_cleanup_error_ struct error ignored = { 0 };
	struct run_ending ending = { .status = RUN_FAILED,
				     .timings = timings,
				     .place_kept_until = w->kept_until,
				     .files = w->report.text ? &w->report : NULL,
				     .environment_id = set_or_null(w->environment.id) };

	if (w->executed)
		describe_exit(w, &ending, &text);
	else
		describe_error(w, &ending);
	result = retained(w, ending.status);
	ending.result = result;
	w->run->status = ending.status;
	free(w->run->error);
	w->run->error = ending.error ? xstrdup(ending.error) : NULL;
	write_ending(w, &ending);
	runs_notify(w->o->runs, w->run->id);
	if (id_is_set(w->agent.id) &&
	    agent_note_run(w->o->db, w->o->clock, w->agent.id, w->run->id,
			   run_status_name(ending.status), ending.error, &ignored) < 0)
		log_warn("agent %s: state not recorded: %s", w->agent.id, ignored.message);
}

enum lease_status lease_status_for_run(enum run_status status)
{
	return status == RUN_FAILED || status == RUN_TIMED_OUT ? LEASE_FAILED : LEASE_RELEASED;
}

/* Every lease has left `active`: what is left to do for its place is in the cleanup queue. */
static bool all_ended(const json_t *report)
{
	const json_t *entry;
	size_t i;

	json_array_foreach (report, i, entry) {
		if (json_str(entry, "error"))
			return false;
	}
	return report != NULL;
}

/* How long releasing took: known, and written, when the place is given back. */
struct release_times {
	const struct run_job *w;
	int64_t begun;
};

static int set_released(struct tx *tx, const struct release_times *t, struct error *err)
{
	_cleanup_json_ json_t *timings = timings_of(t->w);
	struct clock *clock = t->w->o->clock;

	json_put_int(timings, "releasedMs", clock_mono(clock) - t->begun);
	return run_set_timings_tx(tx, clock_now(clock), t->w->run->id, timings, err);
}

static int set_released_with_lease(struct tx *tx, const struct lease *lease, void *arg,
				   struct error *err)
{
	(void)lease;
	return set_released(tx, arg, err);
}

static int set_released_alone(struct tx *tx, void *arg, struct error *err)
{
	return set_released(tx, arg, err);
}

/*
 * Cleanup trouble is the lease room's to retry; it never changes what the run came to. Only if the
 * database refuses the end of a holding it is tried again here, because the sweep gives a run that
 * has just ended its time.
 */
static void release_leases(struct run_job *w, struct lease_also *also)
{
	enum lease_status status = lease_status_for_run(w->run->status);
	int64_t pause_ms = 50;

	for (int tries = 0; tries < RELEASE_TRIES; tries++) {
		_cleanup_error_ struct error err = { 0 };
		_cleanup_json_ json_t *report = lease_release_run(
			w->o->leases, w->run->id, status, w->run->error, also, &w->actor, &err);

		if (all_ended(report))
			return;
		log_warn("run %s: leases not released yet: %s", w->run->id,
			 report ? "the database refused" : err.message);
		if (!runs_pause(w->o->runs, pause_ms))
			return;
		pause_ms *= 2;
	}
}

void job_release(struct run_job *w)
{
	struct release_times times = { w, clock_mono(w->o->clock) };
	struct lease_also also = { .write = set_released_with_lease, .arg = &times };
	_cleanup_error_ struct error err = { 0 };

	/* Else its files are nowhere else; the sweep ends it when the time is over. */
	if (w->kept_until == 0)
		release_leases(w, &also);
	/* No lease was there to be released, or its place is queued for cleanup. */
	if (!also.done && DB_WRITE(w->o->db, "run.timings", set_released_alone, &times, &err) < 0)
		log_warn("run %s: timings not recorded: %s", w->run->id, err.message);
	runs_notify(w->o->runs, w->run->id);
}
