/*
 * The life of a run. Read `orchestrate` at the foot first: it is the table of contents.
 *
 *   resolve ──> prepare ──> acquire ──> realize ──> stage ──> provision ──> execute
 *   resolve.c   stage.c                 realize.c   stage.c
 *                                                                  │
 *                               release <── end <── collect <──────┘
 *                               finish.c            stage.c
 *
 * A step that fails leaves its error in the walk and the rest is left out, except the last three:
 * what the command did is brought home whatever became of it, the row always ends and the leases
 * are always released. The row ends before the leases are released: a crash in between leaves a
 * finished run whose leases the sweep finds by its status, where the other order would leave a run
 * that looks lost and is started a second time. It ends after collecting: a crash before that
 * leaves a running one, whose command is found ended by whoever adopts it, and collects it again.
 */
#include "run/orchestrator.h"

#include <errno.h>
#include <string.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "run/files.h"
#include "run/job.h"
#include "run/prompt.h"
#include "run/realize.h"
#include "run/row.h"

#define PROVISION_TIMEOUT_MS 300000
#define REMEMBER_MS 500
#define DESCRIPTORS_MS 1000

const char *job_adapter(const struct run_job *w)
{
	const char *asked = json_str(json_object_at(w->run->context, "request"), "adapterType");

	if (asked)
		return asked;
	return w->agent.adapter_type ? w->agent.adapter_type : "process";
}

int step_failed(struct error *err, enum error_code code, const char *verb,
		const struct environment *environment)
{
	error_wrap(err, "could not %s \"%s\" (%s)", verb, environment->name,
		   driver_kind_name(environment->driver));
	return error_recode(err, code);
}

bool job_is_cancelled(const struct run_job *w)
{
	return latch_is_set(w->o->cancel_fd) && runs_pause(w->o->runs, 0);
}

/* ---- acquire: a leased place, and the row says `running` ---- */

static void note_waiting(void *arg, const char *reason)
{
	struct run_job *w = arg;
	_cleanup_error_ struct error ignored = { 0 };

	if (run_set_waiting(w->o->db, w->o->clock, w->run->id, w->environment.id, reason,
			    &ignored) < 0)
		log_warn("run %s waits (%s), which could not be recorded: %s", w->run->id, reason,
			 ignored.message);
	runs_notify(w->o->runs, w->run->id);
}

/* Place, lease and `running` are one transaction. */
static int acquire_place(struct run_job *w, const struct workspace_mount *mount, struct error *err)
{
	struct run_start start = { .run_id = w->run->id,
				   .node = w->o->runs->node,
				   .clock = w->o->clock };
	struct lease_also also = { .write = run_set_running_tx, .arg = &start };
	const json_t *asked = json_object_at(w->run->context, "request");
	const char *named = json_str(asked, "leasePolicy");
	enum lease_policy policy;
	bool has_policy = named && lease_policy_parse(named, &policy);
	const struct lease_request request = {
		.company_id = w->run->company_id,
		.environment = &w->environment,
		.run_id = w->run->id,
		.issue_id = set_or_null(w->run->issue_id),
		.agent_id = set_or_null(w->run->agent_id),
		.workspace_id = set_or_null(w->workspace.id),
		.workspace_mode = w->workspace.mode,
		.workspace = mount,
		.policy = has_policy ? &policy : NULL,
		.retain_ms = json_int(asked, "retainSeconds", 0) * 1000,
		.wait_ms = -1,
		.cancel_fd = w->o->cancel_fd,
		.actor = &w->actor,
		.on_wait = note_waiting,
		.on_wait_arg = w,
		.also = &also,
	};

	if (lease_acquire(w->o->leases, &request, &w->lease, &w->place, err) < 0)
		return -1;
	if (start.cancelled)
		return error_set(err, ERR_CANCELLED, "the run was cancelled before it began");
	return 0;
}

/* Never the host instead: what can be done about it is said. */
static int explain_default(const struct run_job *w, struct error *err)
{
	_cleanup_free_ char *why = NULL;

	if (!w->by_default || w->environment.driver != DRIVER_SANDBOX ||
	    (err->code != ERR_LEASE_ACQUIRE && err->code != ERR_UNSUPPORTED_ENV))
		return -1;
	why = xstrdup(err->message);
	return error_set(
		err, err->code,
		"%s. `berth doctor --sandbox` says what is missing; the environment Local, "
		"named, runs on this host without a sandbox",
		why);
}

static int acquire(struct run_job *w, struct error *err)
{
	struct workspace_mount mount;
	bool mounts = files_mount(w->o->makers, &w->files, &w->environment, w->masks, &mount);
	int acquired = acquire_place(w, mounts ? &mount : NULL, err);

	/* Who makes the place may know better whether it can have the directory itself. */
	if (acquired < 0 && mounts && err->code == ERR_UNPROCESSABLE &&
	    job_copy_instead(w, err) == 0)
		acquired = acquire_place(w, NULL, err);
	if (acquired < 0)
		return explain_default(w, err);
	id_copy(w->run->lease_id, w->lease.id);
	runs_notify(w->o->runs, w->run->id);
	return 0;
}

/* ---- provision: the workspace's own command, once its files are there ---- */

static int provision(struct run_job *w, struct error *err)
{
	_cleanup_json_ json_t *config = workspace_config(w->workspace.metadata);
	const char *command = json_str_nonblank(config, "provisionCommand");
	_cleanup_free_ char *trimmed = command ? str_trimmed(command) : NULL;
	_cleanup_free_ char *detail = NULL;
	struct provision p = { .place = &w->place,
			       .generation = w->lease.generation,
			       .run_id = w->run->id,
			       .cwd = w->cwd,
			       .timeout_ms = PROVISION_TIMEOUT_MS };

	if (!trimmed || w->environment.driver == DRIVER_LOCAL)
		return 0;
	if (job_is_cancelled(w))
		return error_set(err, ERR_CANCELLED,
				 "cancelled before the workspace was provisioned");
	p.command = trimmed;
	if (provision_run(w->o, &p, &detail, err) < 0)
		return step_failed(err, ERR_REALIZE, "provision", &w->environment);
	if (detail && job_is_cancelled(w))
		return error_set(err, ERR_CANCELLED,
				 "cancelled while the workspace was provisioned");
	if (detail) {
		error_set(err, ERR_REALIZE, "%s", detail);
		return step_failed(err, ERR_REALIZE, "provision", &w->environment);
	}
	return 0;
}

/* ---- execute: the command, its output to the log ---- */

/*
 * The token by which the run's process speaks to the API as its agent; NULL when it has none, or
 * brings a key of its own.
 */
static char *run_token(const struct run_job *w)
{
	const struct run *run = w->run;
	struct run_claims claims = { .issued_at = clock_now(w->o->clock) };

	if (!w->o->token_key || !id_is_set(run->agent_id) || json_str(run->env, "BERTH_API_KEY") ||
	    json_str(run->env, "PAPERCLIP_API_KEY"))
		return NULL;
	id_copy(claims.agent_id, run->agent_id);
	id_copy(claims.company_id, run->company_id);
	id_copy(claims.run_id, run->id);
	snprintf(claims.adapter_type, sizeof(claims.adapter_type), "%s", job_adapter(w));
	/* It ends with the run; the time is for when nobody could say any more that it has. */
	claims.expires_at = claims.issued_at + MAX_OF(RUN_TOKEN_TTL_MS, run->timeout_ms * 2);
	return run_token_make(w->o->token_key, &claims);
}

/* Variables may be secrets. */
static void env_free(char ***env)
{
	for (char **at = *env; at && *at; at++)
		wipe(*at, strlen(*at));
	strv_free(*env);
}

static char **command_env(const struct run_job *w)
{
	_cleanup_free_ char *token = run_token(w);
	const char *const ours[][2] = {
		{ "RUN_ID", w->run->id },
		{ "COMPANY_ID", w->run->company_id },
		{ "AGENT_ID", set_or_null(w->run->agent_id) },
		{ "WORKSPACE", w->cwd },
		{ "API_URL", w->o->api_url },
		{ "API_KEY", token },
	};
	char **env = NULL;
	const char *key;
	json_t *value;

	json_object_foreach (w->no_project_env ? NULL : w->project.env, key, value) {
		if (!json_object_get(w->run->env, key))
			strv_push(&env, xasprintf("%s=%s", key, json_string_value(value)));
	}
	json_push_env(&env, w->run->env);
	for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
		if (!ours[i][1])
			continue;
		strv_push(&env, xasprintf("BERTH_%s=%s", ours[i][0], ours[i][1]));
		strv_push(&env, xasprintf("PAPERCLIP_%s=%s", ours[i][0], ours[i][1]));
	}
	if (token)
		wipe(token, strlen(token));
	return env;
}

/*
 * A row that says how the run ended must not outlive its output. When the disk refuses, the row
 * still has the length: readers are told what is missing.
 */
static void settle_log(struct run_job *w, struct runlog *log)
{
	_cleanup_error_ struct error err = { 0 };

	w->run->log_bytes = runlog_end(log);
	if (runlog_sync(log, &err) < 0)
		log_warn("run %s: its output may not be on the disk: %s", w->run->id, err.message);
}

/* The command is going in the place, whoever started it: its output to the log until it has ended.
 */
static int follow_exec(struct run_job *w, struct exec *exec, struct runlog *log, struct error *err)
{
	int outcome;

	w->began = true;
	if (job_is_cancelled(w))
		places_cancel(w->o->places, w->run->id, EXEC_CANCELLED, false);
	outcome = exec_wait(exec, &w->result, err);
	w->executed = outcome == 0;
	settle_log(w, log);
	return outcome;
}

/* No relay will tell whether it ran: without a note a later server would run it a second time. */
static int leave_out(struct run_job *w, struct exec *exec, struct error *why, struct error *err)
{
	struct exec_result ignored;

	places_cancel(w->o->places, w->run->id, EXEC_CANCELLED, true);
	exec_wait(exec, &ignored, NULL);
	error_move(err, why);
	return -1;
}

static int execute(struct run_job *w, struct error *err)
{
	const json_t *request = json_object_at(w->run->context, "request");
	const json_t *tty = json_object_at(request, "tty");
	const struct exec_terminal terminal = {
		.rows = (uint16_t)json_int(tty, "rows", 24),
		.cols = (uint16_t)json_int(tty, "cols", 80),
		.term = json_str(tty, "term"),
	};
	_cleanup_(env_free) char **env = command_env(w);
	_cleanup_buf_wiped_ struct buf input = { 0 };
	struct runlog *log = NULL;
	struct exec *exec = NULL;
	struct exec_spec spec = {
		.exec_id = w->run->id,
		.place_id = w->place.id,
		.generation = w->lease.generation,
		.argv = w->run->command,
		.env = env,
		.terminal = tty ? &terminal : NULL,
		/* From a client, or from the person at the terminal. */
		.stdin_stream = tty || json_bool(request, "stdinStream", false),
		.cwd = w->cwd,
		.timeout_ms = run_time_limit(w->run, w->place.config.json),
		/* Until the row says how it ended; the relay itself ends with the lease after that.
		 */
		.keep_exit = true,
	};
	int outcome;

	if (job_is_cancelled(w))
		return error_set(err, ERR_CANCELLED, "cancelled before the command began");
	if (run_stdin(w->run, &input, err) < 0 ||
	    runlog_open(w->o->logs, w->run->id, &log, err) < 0)
		return -1;
	spec.stdin_data = w->run->stdin_text ? buf_str(&input) : NULL;
	spec.stdin_len = input.len;
	spec.log = log;
	outcome = maker_start(w->o->makers, &w->place, &spec, &exec, err);
	if (outcome == 0) {
		_cleanup_error_ struct error unrecorded = { 0 };

		/* Says that the command has begun: a run that had not is simply run again. */
		if (run_set_process(w->o->db, w->o->clock, w->run->id, exec_pid(exec),
				    &unrecorded) < 0)
			log_warn("run %s: process not recorded: %s", w->run->id,
				 unrecorded.message);
		runs_notify(w->o->runs, w->run->id);
		if (unrecorded.code != ERR_NONE && exec_pid(exec) < 0)
			outcome = leave_out(w, exec, &unrecorded, err);
		else
			outcome = follow_exec(w, exec, log, err);
	}
	runlog_close(log);
	return outcome;
}

static void job_clear(struct run_job *w)
{
	agent_clear(&w->agent);
	project_clear(&w->project);
	issue_clear(&w->issue);
	workspace_record_clear(&w->workspace);
	environment_clear(&w->environment);
	lease_clear(&w->lease);
	place_clear(&w->place);
	execution_target_clear(&w->target);
	json_decref(w->request);
	place_realization_clear(&w->realization);
	workspace_state_clear(&w->files);
	files_report_clear(&w->report);
	free(w->masks);
	free(w->cwd);
	error_clear(&w->err);
}

typedef int step_fn(struct run_job *w, struct error *err);

/* Runs a step unless an earlier one failed, and adds its duration. */
static void step(struct run_job *w, step_fn *fn, int64_t *took_ms)
{
	int64_t begin = clock_mono(w->o->clock);

	if (w->err.code == ERR_NONE && fn(w, &w->err) < 0 && w->err.code == ERR_NONE)
		error_set(&w->err, ERR_INTERNAL, "a step failed without saying why");
	*took_ms += clock_mono(w->o->clock) - begin;
}

/*
 * The server goes, and nobody asked for the run's end. It is left as it is, as if the server had
 * been killed: queued, or running in the care of its relay. The next server takes it up.
 */
static bool is_left_behind(const struct run_job *w)
{
	return w->left_behind ||
	       ((w->err.code == ERR_CANCELLED || w->err.code == ERR_UNAVAILABLE) &&
		!runs_pause(w->o->runs, 0));
}

static int64_t since(const struct run_job *w, int64_t begin)
{
	return clock_mono(w->o->clock) - begin;
}

/* Nothing is wrong with the run: this server has too much open at the moment. */
static bool lacks_descriptors(const struct run_job *w)
{
	return (w->err.errnum == EMFILE || w->err.errnum == ENFILE) && !w->began && !w->executed &&
	       !job_is_cancelled(w);
}

/* False: it has to end after all. */
static bool queue_again(struct run_job *w)
{
	struct orchestration *o = w->o;
	const char *id = w->run->id;
	_cleanup_json_ json_t *report = NULL;
	_cleanup_error_ struct error err = { 0 };

	log_warn("run %s waits: %s", id, w->err.message);
	report = lease_release_run(o->leases, id, LEASE_RELEASED, NULL, NULL, &w->actor, &err);
	if (!report || run_set_requeued(o->db, o->clock, o->runs->node, id, &err) < 0) {
		log_warn("run %s cannot be queued again: %s", id, err.message);
		return false;
	}
	run_set_waiting(o->db, o->clock, id, NULL, "the server has too many files open", NULL);
	runs_notify(o->runs, id);
	runs_pause(o->runs, DESCRIPTORS_MS);
	return true;
}

static void finish(struct run_job *w, int64_t begin)
{
	if (lacks_descriptors(w) && queue_again(w)) {
		job_clear(w);
		return;
	}

	int64_t begun = clock_mono(w->o->clock);

	if (!is_left_behind(w)) {
		job_collect(w);
		w->times.collected_ms = since(w, begun);
	}
	if (!is_left_behind(w)) {
		w->times.total_ms = since(w, begin);
		job_end(w);
		job_release(w);
	}
	job_clear(w);
}

void orchestrate(struct orchestration *o, struct run *run)
{
	struct run_job w = { .o = o, .run = run, .actor = run_actor(run) };
	int64_t begin = clock_mono(o->clock);

	step(&w, job_resolve, &w.times.acquired_ms);
	step(&w, job_prepare, &w.times.staged_ms);
	step(&w, acquire, &w.times.acquired_ms);
	step(&w, job_realize, &w.times.realized_ms);
	step(&w, job_stage, &w.times.staged_ms);
	step(&w, job_describe_place, &w.times.realized_ms);
	step(&w, provision, &w.times.provisioned_ms);
	step(&w, execute, &w.times.executed_ms);
	finish(&w, begin);
}

bool run_files_are_unknown(const struct error *why)
{
	return why->code == ERR_NOT_FOUND || why->code == ERR_INVALID_JSON ||
	       why->code == ERR_VALIDATION || why->code == ERR_PROTOCOL;
}

/*
 * What the steps before the command had found out, for those after it. Whatever cannot be read now
 * is read later: without it the work of the run would not be brought home. -1: the server is going.
 */
static int remember(struct run_job *w)
{
	struct orchestration *o = w->o;
	const struct run *run = w->run;
	_cleanup_error_ struct error err = { 0 };

	if (id_is_set(run->agent_id))
		agent_get(o->db, run->agent_id, &w->agent, NULL);
	while (FAULT_HERE("run.recover.files", &err) < 0 ||
	       lease_get(o->leases, run->lease_id, &w->lease, &w->place, &err) < 0 ||
	       (run->workspace &&
		workspace_state_load(&o->runs->engine->results, run->id, &w->files, &err) < 0)) {
		log_warn("run %s: %s of its lease or workspace: %s", run->id,
			 run_files_are_unknown(&err) ? "nothing is known any more"
						     : "nothing is known yet",
			 err.message);
		if (run_files_are_unknown(&err))
			return 0;
		if (!runs_pause(o->runs, REMEMBER_MS))
			return -1;
		error_clear(&err);
	}
	return 0;
}

void orchestrate_adopted(struct orchestration *o, struct run *run, struct exec *exec,
			 struct runlog *log)
{
	struct run_job w = { .o = o, .run = run, .actor = run_actor(run) };
	int64_t begin = clock_mono(o->clock);

	if (remember(&w) < 0) {
		exec_abandon(exec);
		runlog_close(log);
		job_clear(&w);
		return;
	}
	follow_exec(&w, exec, log, &w.err);
	runlog_close(log);
	w.times.executed_ms = w.executed ? w.result.duration_ms : 0;
	finish(&w, begin);
}
